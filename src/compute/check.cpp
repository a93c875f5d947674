#include "compute/check.h"

#include <cmath>
#include <string>

#include "compute/backend.h"
#include "compute/checker.h"

namespace chorus::compute {

Status check(const EmbedArgs& args) {
  const Checker checker("embed");
  CHORUS_TRY(checker.present("table", args.table));
  CHORUS_ASSIGN(const Region out, checker.view("out", args.out));
  CHORUS_ASSIGN(const Region ids, checker.vector("ids", args.ids, {out.rows}));
  CHORUS_TRY(checker.cols(out, args.table->cols(), "columns of the table"));
  return checker.disjoint(out, {ids});
}

namespace {

Status check_row_norm(const Checker& checker, const RowNorm& norm, const Region& x, const Region& out) {
  CHORUS_ASSIGN(const Region weight, checker.vector("norm weight", norm.weight, {x.cols}));
  CHORUS_ASSIGN(const Region normed, checker.view("norm out", norm.out));
  CHORUS_TRY(checker.rows(normed, x.rows, "rows of x"));
  CHORUS_TRY(checker.cols(normed, x.cols, "columns of x"));
  CHORUS_TRY(checker.positive("epsilon", norm.epsilon));
  CHORUS_TRY(checker.disjoint(normed, {x, weight, out}));
  return checker.disjoint(out, {weight});
}

}  // namespace

Status check(const LinearArgs& args) {
  const Checker checker("linear");
  CHORUS_TRY(checker.present("weight", args.weight));
  CHORUS_ASSIGN(const Region x, checker.view("x", args.x));
  CHORUS_ASSIGN(const Region out, checker.view("out", args.out));
  CHORUS_TRY(checker.cols(x, args.weight->cols(), "columns of the weight"));
  CHORUS_TRY(checker.cols(out, args.weight->rows(), "rows of the weight"));
  CHORUS_TRY(checker.rows(out, x.rows, "rows of x"));
  CHORUS_TRY(checker.disjoint(out, {x}));
  if (args.norm.weight) CHORUS_TRY(check_row_norm(checker, args.norm, x, out));
  if (!args.bias) return {};
  CHORUS_ASSIGN(const Region bias, checker.vector("bias", args.bias, {args.weight->rows()}));
  if (args.norm.weight) {
    CHORUS_ASSIGN(const Region normed, checker.view("norm out", args.norm.out));
    CHORUS_TRY(checker.disjoint(normed, {bias}));
  }
  return checker.disjoint(out, {bias});
}

Status check(const RmsNormArgs& args) {
  const Checker checker("rms_norm");
  CHORUS_ASSIGN(const Region x, checker.view("x", args.x));
  CHORUS_ASSIGN(const Region out, checker.view("out", args.out));
  CHORUS_ASSIGN(const Region weight, checker.vector("weight", args.weight, {x.cols}));
  CHORUS_TRY(checker.rows(out, x.rows, "rows of x"));
  CHORUS_TRY(checker.cols(out, x.cols, "columns of x"));
  CHORUS_TRY(checker.positive("epsilon", args.epsilon));
  CHORUS_TRY(checker.disjoint(out, {weight}));
  const bool in_place = out.buffer == x.buffer && out.offset == x.offset && out.stride == x.stride;
  return in_place ? Status{} : checker.disjoint(out, {x});
}

Status check(const GatedRmsNormArgs& args) {
  const Checker checker("gated_rms_norm");
  CHORUS_TRY(checker.positive("head dim", uint64_t{args.head_dim}));
  CHORUS_ASSIGN(const Region x, checker.view("x", args.x));
  CHORUS_ASSIGN(const Region gate, checker.view("gate", args.gate));
  CHORUS_ASSIGN(const Region out, checker.view("out", args.out));
  CHORUS_ASSIGN(const Region weight, checker.vector("weight", args.weight, {args.head_dim}));
  if (x.cols % args.head_dim != 0) {
    return checker.fail("x columns: expected a multiple of the head dim " + std::to_string(args.head_dim) + ", found " +
                        std::to_string(x.cols));
  }
  CHORUS_TRY(checker.rows(gate, x.rows, "rows of x"));
  CHORUS_TRY(checker.cols(gate, x.cols, "columns of x"));
  CHORUS_TRY(checker.rows(out, x.rows, "rows of x"));
  CHORUS_TRY(checker.cols(out, x.cols, "columns of x"));
  CHORUS_TRY(checker.positive("epsilon", args.epsilon));
  CHORUS_TRY(checker.disjoint(out, {gate, weight}));
  const bool in_place = out.buffer == x.buffer && out.offset == x.offset && out.stride == x.stride;
  return in_place ? Status{} : checker.disjoint(out, {x});
}

Status check(const SwigluArgs& args) {
  const Checker checker("swiglu");
  CHORUS_ASSIGN(const Region gate_up, checker.view("gate_up", args.gate_up));
  CHORUS_ASSIGN(const Region out, checker.view("out", args.out));
  CHORUS_TRY(checker.rows(out, gate_up.rows, "rows of gate_up"));
  CHORUS_TRY(checker.cols(gate_up, 2 * out.cols, "twice the columns of out"));
  return checker.disjoint(out, {gate_up});
}

Status check(const CausalConvArgs& args) {
  const Checker checker("causal_conv");
  CHORUS_ASSIGN(const Region x, checker.view("x", args.x));
  CHORUS_ASSIGN(const Region out, checker.view("out", args.out));
  CHORUS_ASSIGN(const Region weight, checker.vector("weight", args.weight, {x.cols, 4}));
  CHORUS_ASSIGN(const Region history_in, checker.vector("history_in", args.history_in, {3, x.cols}));
  CHORUS_TRY(checker.rows(out, x.rows, "rows of x"));
  CHORUS_TRY(checker.cols(out, x.cols, "columns of x"));
  CHORUS_TRY(checker.sequences(args.sequences, x.rows));
  CHORUS_TRY(checker.disjoint(out, {x, weight, history_in}));
  if (!args.history_out) return {};
  CHORUS_ASSIGN(const Region history_out, checker.vector("history_out", args.history_out, {3, x.cols}));
  CHORUS_TRY(checker.one_sequence("history_out", *args.sequences));
  return checker.disjoint(history_out, {x, weight, history_in, out});
}

Status check(const GatedDeltaArgs& args) {
  const Checker checker("gated_delta");
  const GatedDeltaShape& shape = args.shape;
  CHORUS_TRY(checker.positive("key heads", uint64_t{shape.key_heads}));
  CHORUS_TRY(checker.positive("value heads", uint64_t{shape.value_heads}));
  CHORUS_TRY(checker.positive("key dim", uint64_t{shape.key_dim}));
  CHORUS_TRY(checker.positive("value dim", uint64_t{shape.value_dim}));
  if (shape.value_heads % shape.key_heads != 0) {
    return checker.fail("value heads: expected a multiple of the " + std::to_string(shape.key_heads) + " key heads, found " +
                        std::to_string(shape.value_heads));
  }
  CHORUS_ASSIGN(const Region qkv, checker.view("qkv", args.qkv));
  CHORUS_ASSIGN(const Region b, checker.view("b", args.b));
  CHORUS_ASSIGN(const Region a, checker.view("a", args.a));
  CHORUS_ASSIGN(const Region out, checker.view("out", args.out));
  CHORUS_ASSIGN(const Region a_log, checker.vector("a_log", args.a_log, {shape.value_heads}));
  CHORUS_ASSIGN(const Region dt_bias, checker.vector("dt_bias", args.dt_bias, {shape.value_heads}));
  CHORUS_ASSIGN(const Region state_in, checker.vector("state_in", args.state_in, {shape.value_heads, shape.key_dim, shape.value_dim}));
  uint64_t keys = 0, values = uint64_t{shape.value_heads} * shape.value_dim, columns = 0;
  if (!head_columns(shape.key_heads, shape.key_dim, 2, keys) || __builtin_add_overflow(keys, values, &columns)) {
    return checker.fail("qkv: expected heads times head dim to fit 64 bits, found more");
  }
  CHORUS_TRY(checker.cols(qkv, columns, "2 * key heads * key dim + value heads * value dim"));
  CHORUS_TRY(checker.cols(out, values, "value heads * value dim"));
  CHORUS_TRY(checker.cols(b, shape.value_heads, "value heads"));
  CHORUS_TRY(checker.cols(a, shape.value_heads, "value heads"));
  CHORUS_TRY(checker.rows(out, qkv.rows, "rows of qkv"));
  CHORUS_TRY(checker.rows(b, qkv.rows, "rows of qkv"));
  CHORUS_TRY(checker.rows(a, qkv.rows, "rows of qkv"));
  CHORUS_TRY(checker.sequences(args.sequences, qkv.rows));
  CHORUS_TRY(checker.disjoint(out, {qkv, b, a, a_log, dt_bias, state_in}));
  if (!args.state_out) return {};
  CHORUS_ASSIGN(const Region state_out, checker.vector("state_out", args.state_out, {shape.value_heads, shape.key_dim, shape.value_dim}));
  CHORUS_TRY(checker.one_sequence("state_out", *args.sequences));
  return checker.disjoint(state_out, {qkv, b, a, a_log, dt_bias, state_in, out});
}

namespace {

Result<Region> check_norm_weight(const Checker& checker, const char* name, const Buffer* weight, uint32_t heads,
                                 const QkNormRopeArgs& args) {
  if (args.norm == QueryKeyNorm::per_head) return checker.vector(name, weight, {args.shape.head_dim});
  if (args.norm == QueryKeyNorm::whole_row) return checker.vector(name, weight, {heads, args.shape.head_dim});
  if (weight) return checker.fail(std::string(name) + ": expected none without a norm, found one");
  return Region{name, nullptr, 0, 0, 0, 0};
}

}  // namespace

Status check(const QkNormRopeArgs& args) {
  const Checker checker("qk_norm_rope");
  const AttentionShape& shape = args.shape;
  CHORUS_TRY(check_attention_shape(checker, shape));
  if (args.rotary_dim == 0 || args.rotary_dim % 2 != 0 || args.rotary_dim > shape.head_dim) {
    return checker.fail("rotary dim: expected an even number from 2 to the head dim " + std::to_string(shape.head_dim) + ", found " +
                        std::to_string(args.rotary_dim));
  }
  CHORUS_TRY(checker.positive("epsilon", args.epsilon));
  if (args.gated && args.norm == QueryKeyNorm::whole_row)
    return checker.fail("norm: expected one per head beside a gate, found one of the whole row");
  CHORUS_ASSIGN(const Region kv, checker.view("kv", args.kv));
  CHORUS_ASSIGN(const Region k_weight, check_norm_weight(checker, "k_weight", args.k_weight, shape.kv_heads, args));
  CHORUS_ASSIGN(const Region cosine, checker.view("cosine", args.cosine));
  CHORUS_ASSIGN(const Region sine, checker.view("sine", args.sine));
  CHORUS_ASSIGN(const Region k_out, checker.view("k_out", args.k_out));
  CHORUS_ASSIGN(const Region v_out, checker.view("v_out", args.v_out));
  CHORUS_TRY(check_head_columns(checker, kv, shape.kv_heads, shape.head_dim, 2, "2 * kv heads * head dim"));
  CHORUS_TRY(check_head_columns(checker, k_out, shape.kv_heads, shape.head_dim, 1, "kv heads * head dim"));
  CHORUS_TRY(check_head_columns(checker, v_out, shape.kv_heads, shape.head_dim, 1, "kv heads * head dim"));
  for (const Region& table : {cosine, sine}) {
    CHORUS_TRY(checker.cols(table, args.rotary_dim / 2, "half of the rotary dim"));
    CHORUS_TRY(checker.rows(table, kv.rows, "rows of kv"));
  }
  CHORUS_TRY(checker.rows(k_out, kv.rows, "rows of kv"));
  CHORUS_TRY(checker.rows(v_out, kv.rows, "rows of kv"));
  CHORUS_TRY(checker.disjoint(k_out, {kv, k_weight, cosine, sine, v_out}));
  CHORUS_TRY(checker.disjoint(v_out, {kv, k_weight, cosine, sine}));
  if (!args.q_out.buffer) return {};
  CHORUS_ASSIGN(const Region q_gate, checker.view("q_gate", args.q_gate));
  CHORUS_ASSIGN(const Region q_weight, check_norm_weight(checker, "q_weight", args.q_weight, shape.query_heads, args));
  CHORUS_ASSIGN(const Region q_out, checker.view("q_out", args.q_out));
  CHORUS_TRY(check_head_columns(checker, q_gate, shape.query_heads, shape.head_dim, args.gated ? 2 : 1,
                                args.gated ? "2 * query heads * head dim" : "query heads * head dim"));
  CHORUS_TRY(check_head_columns(checker, q_out, shape.query_heads, shape.head_dim, 1, "query heads * head dim"));
  CHORUS_TRY(checker.rows(q_gate, kv.rows, "rows of kv"));
  CHORUS_TRY(checker.rows(q_out, kv.rows, "rows of kv"));
  for (const Region& output : {k_out, v_out}) CHORUS_TRY(checker.disjoint(output, {q_gate, q_weight}));
  return checker.disjoint(q_out, {q_gate, kv, q_weight, k_weight, cosine, sine, k_out, v_out});
}

Status check(const AttentionArgs& args) {
  const Checker checker("attention");
  const AttentionShape& shape = args.shape;
  CHORUS_TRY(check_attention_shape(checker, shape));
  CHORUS_TRY(checker.positive("scale", args.scale));
  CHORUS_ASSIGN(const Region q, checker.view("q", args.q));
  CHORUS_ASSIGN(const Region q_gate, checker.view("q_gate", args.q_gate));
  CHORUS_ASSIGN(const Region own_k, checker.view("own_k", args.own_k));
  CHORUS_ASSIGN(const Region own_v, checker.view("own_v", args.own_v));
  CHORUS_ASSIGN(const Region out, checker.view("out", args.out));
  CHORUS_TRY(check_head_columns(checker, q, shape.query_heads, shape.head_dim, 1, "query heads * head dim"));
  CHORUS_TRY(check_head_columns(checker, q_gate, shape.query_heads, shape.head_dim, 2, "2 * query heads * head dim"));
  CHORUS_TRY(check_head_columns(checker, own_k, shape.kv_heads, shape.head_dim, 1, "kv heads * head dim"));
  CHORUS_TRY(check_head_columns(checker, own_v, shape.kv_heads, shape.head_dim, 1, "kv heads * head dim"));
  CHORUS_TRY(check_head_columns(checker, out, shape.query_heads, shape.head_dim, 1, "query heads * head dim"));
  for (const Region& region : {q_gate, own_k, own_v, out}) CHORUS_TRY(checker.rows(region, q.rows, "rows of q"));
  CHORUS_TRY(checker.sequences(args.sequences, q.rows));
  CHORUS_TRY(checker.disjoint(out, {q, q_gate, own_k, own_v}));
  CHORUS_TRY(checker.count("prefix_v rows", args.prefix_v.rows, args.prefix_k.rows, "rows of prefix_k"));
  if (args.prefix_k.rows == 0) return {};
  CHORUS_ASSIGN(const Region prefix_k, checker.view("prefix_k", args.prefix_k));
  CHORUS_ASSIGN(const Region prefix_v, checker.view("prefix_v", args.prefix_v));
  CHORUS_TRY(check_head_columns(checker, prefix_k, shape.kv_heads, shape.head_dim, 1, "kv heads * head dim"));
  CHORUS_TRY(check_head_columns(checker, prefix_v, shape.kv_heads, shape.head_dim, 1, "kv heads * head dim"));
  return checker.disjoint(out, {prefix_k, prefix_v});
}

Status check(const GatherRowsArgs& args) {
  const Checker checker("gather_rows");
  CHORUS_ASSIGN(const Region x, checker.view("x", args.x));
  CHORUS_ASSIGN(const Region out, checker.view("out", args.out));
  CHORUS_ASSIGN(const Region indices, checker.vector("indices", args.indices, {out.rows}));
  CHORUS_TRY(checker.cols(out, x.cols, "columns of x"));
  if (out.rows > 0) CHORUS_TRY(checker.positive("x rows", x.rows));
  return checker.disjoint(out, {x, indices});
}

Status check(const PointerScoresArgs& args) {
  const Checker checker("pointer_scores");
  CHORUS_ASSIGN(const Region queries, checker.view("queries", args.queries));
  CHORUS_ASSIGN(const Region keys, checker.view("keys", args.keys));
  CHORUS_ASSIGN(const Region owners, checker.vector("question_of_option", args.question_of_option, {keys.rows}));
  CHORUS_ASSIGN(const Region scores, checker.vector("scores", args.scores, {keys.rows}));
  CHORUS_TRY(checker.cols(keys, queries.cols, "columns of queries"));
  if (keys.rows > 0) CHORUS_TRY(checker.positive("queries rows", queries.rows));
  CHORUS_TRY(checker.finite("scale", args.scale));
  CHORUS_TRY(checker.positive("temperature", args.temperature));
  return checker.disjoint(scores, {queries, keys, owners});
}

Status check(const SegmentSoftmaxArgs& args) {
  const Checker checker("segment_softmax");
  CHORUS_ASSIGN(const Region values, checker.vector("values", args.values, {args.count}));
  CHORUS_ASSIGN(const Region out, checker.vector("out", args.out, {args.count}));
  CHORUS_ASSIGN(const Region starts, checker.vector("segment_starts", args.segment_starts, {uint64_t{args.segments} + 1}));
  if (args.count > 0) CHORUS_TRY(checker.positive("segments", uint64_t{args.segments}));
  return checker.disjoint(out, {values, starts});
}

Status check(const CopyArgs& args) {
  const Checker checker("copy");
  CHORUS_TRY(checker.present("source", args.source));
  CHORUS_TRY(checker.present("target", args.target));
  if (args.source == args.target) return checker.fail("target: expected another buffer than the source, found the same one");
  struct Side {
    const char* name;
    uint64_t offset;
    uint64_t held;
  };
  for (const Side& side :
       {Side{"source", args.source_offset, args.source->bytes()}, Side{"target", args.target_offset, args.target->bytes()}}) {
    if (side.offset % kElementBytes != 0) {
      return checker.fail(std::string(side.name) + " offset: expected a multiple of 4 bytes, found " + std::to_string(side.offset));
    }
    if (side.offset > side.held || args.bytes > side.held - side.offset) {
      return checker.fail(std::string(side.name) + ": expected " + std::to_string(args.bytes) + " bytes from offset " +
                          std::to_string(side.offset) + " inside the buffer, found a buffer of " + std::to_string(side.held) + " bytes");
    }
  }
  if (args.bytes % kElementBytes != 0) return checker.fail("bytes: expected a multiple of 4, found " + std::to_string(args.bytes));
  return {};
}

}  // namespace chorus::compute
