// The checks of the operations of language models that stand between the big ones, and of those that choose a token.
#include <cmath>
#include <string>

#include "compute/check.h"
#include "compute/checker.h"

namespace chorus::compute {
namespace {

bool same_view(const Region& a, const Region& b) { return a.buffer == b.buffer && a.offset == b.offset && a.stride == b.stride; }

}  // namespace

Status check(const LayerNormArgs& args) {
  const Checker checker("layer_norm");
  CHORUS_ASSIGN(const Region x, checker.view("x", args.x));
  CHORUS_ASSIGN(const Region out, checker.view("out", args.out));
  CHORUS_ASSIGN(const Region weight, checker.vector("weight", args.weight, {x.cols}));
  CHORUS_ASSIGN(const Region bias, checker.vector("bias", args.bias, {x.cols}));
  CHORUS_TRY(checker.rows(out, x.rows, "rows of x"));
  CHORUS_TRY(checker.cols(out, x.cols, "columns of x"));
  CHORUS_TRY(checker.positive("epsilon", args.epsilon));
  CHORUS_TRY(checker.disjoint(out, {weight, bias}));
  return same_view(x, out) ? Status{} : checker.disjoint(out, {x});
}

Status check(const RopeArgs& args) {
  const Checker checker("rope");
  CHORUS_TRY(checker.positive("heads", uint64_t{args.heads}));
  CHORUS_TRY(checker.positive("head dim", uint64_t{args.head_dim}));
  if (args.rotary_dim == 0 || args.rotary_dim % 2 != 0 || uint64_t{args.first} + args.rotary_dim > args.head_dim) {
    return checker.fail("rotary dim: expected an even number above 0 that ends inside the head dim " + std::to_string(args.head_dim) +
                        ", found " + std::to_string(args.rotary_dim) + " from column " + std::to_string(args.first));
  }
  CHORUS_ASSIGN(const Region x, checker.view("x", args.x));
  CHORUS_ASSIGN(const Region cosine, checker.view("cosine", args.cosine));
  CHORUS_ASSIGN(const Region sine, checker.view("sine", args.sine));
  CHORUS_ASSIGN(const Region out, checker.view("out", args.out));
  CHORUS_TRY(check_head_columns(checker, x, args.heads, args.head_dim, 1, "heads * head dim"));
  CHORUS_TRY(checker.cols(out, x.cols, "columns of x"));
  CHORUS_TRY(checker.rows(out, x.rows, "rows of x"));
  for (const Region& table : {cosine, sine}) {
    CHORUS_TRY(checker.cols(table, args.rotary_dim / 2, "half of the rotary dim"));
    CHORUS_TRY(checker.rows(table, x.rows, "rows of x"));
  }
  CHORUS_TRY(checker.disjoint(out, {cosine, sine}));
  return same_view(x, out) ? Status{} : checker.disjoint(out, {x});
}

Status check(const HeadLinearArgs& args) {
  const Checker checker("head_linear");
  CHORUS_TRY(checker.positive("heads", uint64_t{args.heads}));
  CHORUS_TRY(checker.present("weight", args.weight));
  CHORUS_ASSIGN(const Region x, checker.view("x", args.x));
  CHORUS_ASSIGN(const Region out, checker.view("out", args.out));
  const uint64_t depth = args.weight->cols(), rows = args.weight->rows();
  if (rows == 0 || rows % args.heads != 0) {
    return checker.fail("weight rows: expected a multiple of the " + std::to_string(args.heads) + " heads, found " + std::to_string(rows));
  }
  if (args.x_head_stride < depth) {
    return checker.fail("x head stride: expected at least the " + std::to_string(depth) + " columns of the weight, found " +
                        std::to_string(args.x_head_stride));
  }
  const uint64_t needed = uint64_t{args.heads - 1} * args.x_head_stride + depth;  // below 2^64: u32 factors
  if (needed > x.cols) {
    return checker.fail("x columns: expected at least " + std::to_string(needed) +
                        " ((heads - 1) * x head stride + columns of the weight), found " + std::to_string(x.cols));
  }
  CHORUS_TRY(checker.cols(out, rows, "rows of the weight"));
  CHORUS_TRY(checker.rows(out, x.rows, "rows of x"));
  return checker.disjoint(out, {x});
}

Status check(const ArgmaxArgs& args) {
  const Checker checker("argmax");
  CHORUS_ASSIGN(const Region x, checker.view("x", args.x));
  CHORUS_ASSIGN(const Region indices, checker.vector("indices", args.indices, {x.rows}));
  return checker.disjoint(indices, {x});
}

Status check(const SampleArgs& args) {
  const Checker checker("sample");
  constexpr uint64_t kRowElements = sizeof(SampleRow) / kElementBytes;
  CHORUS_ASSIGN(const Region logits, checker.view("logits", args.logits));
  CHORUS_ASSIGN(const Region rows, checker.vector("rows", args.rows, {logits.rows, kRowElements}));
  CHORUS_ASSIGN(const Region indices, checker.vector("indices", args.indices, {logits.rows}));
  if (logits.cols > kSampleVocabularyMax) {
    return checker.fail("logits columns: expected at most " + std::to_string(kSampleVocabularyMax) + ", found " +
                        std::to_string(logits.cols));
  }
  return checker.disjoint(indices, {logits, rows});
}

}  // namespace chorus::compute
