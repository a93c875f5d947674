// Checks of attention over a cache and of its choice of keys.
#include <string>

#include "compute/check.h"
#include "compute/checker.h"

namespace chorus::compute {
namespace {

uint64_t words_of_keys(uint64_t keys) { return (keys + 31) / 32; }

// The rows stand at the end of the keys.
Status check_key_rows(const Checker& checker, const Region& keys, uint64_t rows) {
  if (keys.rows >= rows) return {};
  return checker.fail("keys rows: expected at least the " + std::to_string(rows) + " rows of q, found " + std::to_string(keys.rows));
}

}  // namespace

Status check(const AttendArgs& args) {
  const Checker checker("attend");
  CHORUS_TRY(checker.positive("query heads", uint64_t{args.query_heads}));
  CHORUS_TRY(checker.positive("kv heads", uint64_t{args.kv_heads}));
  CHORUS_TRY(checker.positive("key dim", uint64_t{args.key_dim}));
  CHORUS_TRY(checker.positive("value dim", uint64_t{args.value_dim}));
  if (args.query_heads % args.kv_heads != 0) {
    return checker.fail("query heads: expected a multiple of the " + std::to_string(args.kv_heads) + " kv heads, found " +
                        std::to_string(args.query_heads));
  }
  CHORUS_TRY(checker.positive("scale", args.scale));
  CHORUS_ASSIGN(const Region q, checker.view("q", args.q));
  CHORUS_ASSIGN(const Region keys, checker.view("keys", args.keys));
  CHORUS_ASSIGN(const Region values, checker.view("values", args.values));
  CHORUS_ASSIGN(const Region out, checker.view("out", args.out));
  CHORUS_TRY(check_head_columns(checker, q, args.query_heads, args.key_dim, 1, "query heads * key dim"));
  CHORUS_TRY(check_head_columns(checker, keys, args.kv_heads, args.key_dim, 1, "kv heads * key dim"));
  CHORUS_TRY(check_head_columns(checker, values, args.kv_heads, args.value_dim, 1, "kv heads * value dim"));
  CHORUS_TRY(check_head_columns(checker, out, args.query_heads, args.value_dim, 1, "query heads * value dim"));
  CHORUS_TRY(checker.rows(out, q.rows, "rows of q"));
  CHORUS_TRY(checker.rows(values, keys.rows, "rows of keys"));
  CHORUS_TRY(check_key_rows(checker, keys, q.rows));
  CHORUS_TRY(checker.disjoint(out, {q, keys, values}));
  if (args.sinks) {
    CHORUS_ASSIGN(const Region sinks, checker.vector("sinks", args.sinks, {args.query_heads}));
    CHORUS_TRY(checker.disjoint(out, {sinks}));
  }
  if (args.selected) {
    CHORUS_ASSIGN(const Region selected, checker.vector("selected", args.selected, {q.rows, words_of_keys(keys.rows)}));
    CHORUS_TRY(checker.disjoint(out, {selected}));
  }
  return {};
}

Status check(const SelectKeysArgs& args) {
  const Checker checker("select_keys");
  CHORUS_TRY(checker.positive("heads", uint64_t{args.heads}));
  CHORUS_TRY(checker.positive("head dim", uint64_t{args.head_dim}));
  CHORUS_TRY(checker.positive("top_k", uint64_t{args.top_k}));
  CHORUS_TRY(checker.positive("scale", args.scale));
  CHORUS_ASSIGN(const Region q, checker.view("q", args.q));
  CHORUS_ASSIGN(const Region keys, checker.view("keys", args.keys));
  CHORUS_ASSIGN(const Region weights, checker.view("weights", args.weights));
  CHORUS_ASSIGN(const Region selected, checker.vector("selected", args.selected, {q.rows, words_of_keys(keys.rows)}));
  CHORUS_TRY(check_head_columns(checker, q, args.heads, args.head_dim, 1, "heads * head dim"));
  CHORUS_TRY(checker.cols(keys, args.head_dim, "head dim"));
  CHORUS_TRY(checker.cols(weights, args.heads, "heads"));
  CHORUS_TRY(checker.rows(weights, q.rows, "rows of q"));
  CHORUS_TRY(check_key_rows(checker, keys, q.rows));
  return checker.disjoint(selected, {q, keys, weights});
}

}  // namespace chorus::compute
