// Checks of the mixture-of-experts operations and of expert banks.
#include <string>

#include "base/limits.h"
#include "compute/check.h"
#include "compute/checker.h"

namespace chorus::compute {
namespace {

Status check_top_k(const Checker& checker, uint32_t top_k, uint64_t most, const char* source) {
  if (top_k >= 1 && top_k <= most) return {};
  return checker.fail("top_k: expected 1 to " + std::to_string(most) + " (" + source + "), found " + std::to_string(top_k));
}

Status check_groups(const Checker& checker, const RouterArgs& args) {
  const uint32_t experts = args.logits.cols;
  if (args.groups == 0 || experts % args.groups != 0) {
    return checker.fail("groups: expected a divisor of the " + std::to_string(experts) + " experts, found " + std::to_string(args.groups));
  }
  if (args.groups_kept == 0 || args.groups_kept > args.groups) {
    return checker.fail("groups kept: expected 1 to the " + std::to_string(args.groups) + " groups, found " +
                        std::to_string(args.groups_kept));
  }
  if (args.groups > 1 && experts / args.groups < 2) {
    return checker.fail("groups: expected at least two experts in each, found " + std::to_string(args.groups) + " groups of " +
                        std::to_string(experts) + " experts");
  }
  return {};
}

}  // namespace

Status check(const RouterArgs& args) {
  const Checker checker("router");
  CHORUS_ASSIGN(const Region logits, checker.view("logits", args.logits));
  CHORUS_TRY(check_groups(checker, args));
  CHORUS_TRY(check_top_k(checker, args.top_k, kExpertsPerTokenMax, "the limit on experts per token"));
  const uint64_t candidates = uint64_t{args.logits.cols / args.groups} * args.groups_kept;
  CHORUS_TRY(check_top_k(checker, args.top_k, candidates, "experts of the kept groups"));
  CHORUS_TRY(checker.finite("scale", args.scale));
  CHORUS_ASSIGN(const Region experts, checker.vector("experts", args.experts, {logits.rows, args.top_k}));
  CHORUS_ASSIGN(const Region weights, checker.vector("weights", args.weights, {logits.rows, args.top_k}));
  CHORUS_TRY(checker.disjoint(experts, {logits, weights}));
  CHORUS_TRY(checker.disjoint(weights, {logits}));
  if (!args.bias) return {};
  CHORUS_ASSIGN(const Region bias, checker.vector("bias", args.bias, {logits.cols}));
  CHORUS_TRY(checker.disjoint(experts, {bias}));
  return checker.disjoint(weights, {bias});
}

Status check(const ExpertFfnArgs& args) {
  const Checker checker("expert_ffn");
  CHORUS_TRY(checker.present("bank", args.bank));
  CHORUS_TRY(check_top_k(checker, args.top_k, kExpertsPerTokenMax, "the limit on experts per token"));
  CHORUS_ASSIGN(const Region x, checker.view("x", args.x));
  CHORUS_ASSIGN(const Region out, checker.view("out", args.out));
  CHORUS_ASSIGN(const Region slots, checker.vector("slots", args.slots, {x.rows, args.top_k}));
  CHORUS_TRY(checker.cols(x, args.bank->shape().hidden, "hidden size of the experts"));
  CHORUS_TRY(checker.cols(out, args.bank->shape().hidden, "hidden size of the experts"));
  CHORUS_TRY(checker.rows(out, x.rows * args.top_k, "rows of x times top_k"));
  if (args.activation == ExpertActivation::clamped_swiglu) {
    CHORUS_TRY(checker.finite("alpha", args.alpha));
    CHORUS_TRY(checker.positive("limit", args.limit));
  }
  return checker.disjoint(out, {x, slots});
}

Status check(const CombineRoutesArgs& args) {
  const Checker checker("combine_routes");
  CHORUS_TRY(check_top_k(checker, args.top_k, kExpertsPerTokenMax, "the limit on experts per token"));
  CHORUS_ASSIGN(const Region routed, checker.view("routed", args.routed));
  CHORUS_ASSIGN(const Region out, checker.view("out", args.out));
  CHORUS_ASSIGN(const Region weights, checker.vector("weights", args.weights, {out.rows, args.top_k}));
  CHORUS_TRY(checker.rows(routed, out.rows * args.top_k, "rows of out times top_k"));
  CHORUS_TRY(checker.cols(routed, out.cols, "columns of out"));
  CHORUS_TRY(checker.disjoint(out, {routed, weights}));
  if (!args.shared.buffer) {
    return args.shared_gate.buffer ? checker.fail("shared gate: expected none without shared, found one") : Status();
  }
  CHORUS_ASSIGN(const Region shared, checker.view("shared", args.shared));
  CHORUS_TRY(checker.rows(shared, out.rows, "rows of out"));
  CHORUS_TRY(checker.cols(shared, out.cols, "columns of out"));
  CHORUS_TRY(checker.disjoint(out, {shared}));
  if (!args.shared_gate.buffer) return {};
  CHORUS_ASSIGN(const Region gate, checker.view("shared gate", args.shared_gate));
  CHORUS_TRY(checker.rows(gate, out.rows, "rows of out"));
  CHORUS_TRY(checker.cols(gate, 1, "one gate a row"));
  return checker.disjoint(out, {gate});
}

Status check_bank(const ExpertShape& shape, uint32_t slots) {
  const Checker checker("expert bank");
  struct Size {
    const char* name;
    uint32_t found;
  };
  for (const Size& size : {Size{"hidden size", shape.hidden}, Size{"inner size", shape.inner}}) {
    if (size.found >= 1 && size.found <= limits::kModelDimensionMax) continue;
    return checker.fail(std::string(size.name) + ": expected 1 to " + std::to_string(limits::kModelDimensionMax) + ", found " +
                        std::to_string(size.found));
  }
  return checker.positive("slots", uint64_t{slots});
}

Status check_expert(const ExpertBank& bank, uint32_t slot, uint64_t record_bytes) {
  const Checker checker("write_expert");
  if (slot >= bank.slots()) {
    return checker.fail("slot: expected one of " + std::to_string(bank.slots()) + ", found " + std::to_string(slot));
  }
  return checker.count("record bytes", record_bytes, ExpertRecord(bank.shape()).bytes, "the record of the bank's shape");
}

}  // namespace chorus::compute
