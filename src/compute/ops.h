// The operation set: one argument struct per operation, with shapes, precision and the formula.
// Shared by every backend; compute/check.h validates the arguments once for all of them.
//
// Views are row-major f32 matrices inside a buffer; `offset` and `stride` count elements. A row's elements are contiguous.
// No output may overlap an input unless the operation says so. Zero rows are legal everywhere and do nothing.
#pragma once

#include <cstdint>
#include <vector>

namespace chorus::compute {

class Buffer;
class ExpertBank;
class Weight;

struct View {
  const Buffer* buffer = nullptr;
  uint64_t offset = 0;  // elements
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint32_t stride = 0;  // elements between rows, >= cols
};

struct MutableView {
  Buffer* buffer = nullptr;
  uint64_t offset = 0;
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint32_t stride = 0;

  operator View() const { return View{buffer, offset, rows, cols, stride}; }  // NOLINT: a mutable view is readable
};

// Several token sequences laid end to end in one matrix of rows. Sequence s owns rows [start, start + length).
// Sequences tile the rows without gaps. `device` holds the same pairs as u32 (start, length).
struct SequenceSpan {
  uint32_t start = 0;
  uint32_t length = 0;
};

struct Sequences {
  std::vector<SequenceSpan> spans;
  const Buffer* device = nullptr;  // u32 [spans.size() * 2]
};

// out[i, :] = table[ids[i], :] as f32. ids: u32 [rows]; every id < table.rows() (the caller's promise; backends clamp).
struct EmbedArgs {
  const Buffer* ids = nullptr;
  const Weight* table = nullptr;
  MutableView out;  // [rows, table.cols]
};

enum class LinearStore { overwrite, add };  // add: out += result (the residual connection)

enum class NormWeight { plain, one_plus };  // multiply by w, or by (1 + w)

// RMSNorm of rows on their way into a product, as in RmsNormArgs. weight null: none.
struct RowNorm {
  const Buffer* weight = nullptr;
  float epsilon = 1e-6f;
  NormWeight form = NormWeight::plain;
  MutableView out;  // receives the normed rows
};

// out[m, n] (=|+=) sum_k x[m, k] * w[n, k] + bias[n]. Products and sums in f32; 16-bit weights are widened first.
// A backend may write each operand as a sum of two f16 numbers (22 bits) for matrix hardware, with f32 sums. Whatever the route and the
// number of rows: |error| <= (K + 16) * 2^-24 * (sum_k |x w| + |bias| + |out before|), K being the columns of x. On that route values far
// below the largest of their row keep fewer bits, which adds up to 2^-37 * (max_k |x| * sum_k |w| + max_k |w| * sum_k |x|), and 2^-26 of
// it where the device flushes subnormal f16 numbers. bias: f32 [w.rows] or null.
struct LinearArgs {
  View x;  // [rows, w.cols]
  const Weight* weight = nullptr;
  const Buffer* bias = nullptr;
  MutableView out;  // [rows, w.rows]
  LinearStore store = LinearStore::overwrite;
  RowNorm norm;  // with a weight: the product is that of norm.out = rms_norm(x); K + 16 above becomes K + 32
};

// out = x * rsqrt(mean(x^2) + epsilon) * weight. Source: Qwen3.5 RMSNorm (one_plus), RMSNorm (plain). weight: f32 [cols].
struct RmsNormArgs {
  View x;
  const Buffer* weight = nullptr;
  float epsilon = 1e-6f;
  NormWeight form = NormWeight::one_plus;
  MutableView out;  // same shape as x; may be the same view as x
};

// Per head h of `head_dim` columns: out = x * rsqrt(mean(x^2) + epsilon) * weight * silu(gate). Norm before gate. weight: f32 [head_dim].
struct GatedRmsNormArgs {
  View x;     // [rows, heads * head_dim]
  View gate;  // [rows, heads * head_dim]
  const Buffer* weight = nullptr;
  uint32_t head_dim = 0;
  float epsilon = 1e-6f;
  MutableView out;  // same shape as x; may be the same view as x
};

// out[:, j] = silu(gate_up[:, j]) * gate_up[:, F + j].
struct SwigluArgs {
  View gate_up;     // [rows, 2F]
  MutableView out;  // [rows, F]
};

// Depthwise causal convolution over time, then SiLU. For channel c and row t of a sequence (u = x, before row 0: history):
//   out[t, c] = silu(sum_{j=0..3} weight[c, j] * u[t - 3 + j, c])
// history_in: f32 [3, channels], the last three inputs before every sequence (oldest first), shared by all sequences.
// history_out: null, or f32 [3, channels] written from the end of the only sequence (exactly one sequence then); not history_in.
struct CausalConvArgs {
  View x;                          // [rows, channels]
  const Buffer* weight = nullptr;  // f32 [channels, 4]
  const Buffer* history_in = nullptr;
  Buffer* history_out = nullptr;
  const Sequences* sequences = nullptr;
  MutableView out;  // [rows, channels]
};

struct GatedDeltaShape {
  uint32_t key_heads = 0;
  uint32_t value_heads = 0;  // a multiple of key_heads; key head of value head h is h / (value_heads / key_heads)
  uint32_t key_dim = 0;
  uint32_t value_dim = 0;
};

// Gated delta rule (Yang et al. 2024, "Gated Delta Networks"; transformers' Qwen3.5 implementation is the reference).
// Per value head, with S [key_dim, value_dim] starting from state_in:
//   q, k <- q * rsqrt(sum q^2 + 1e-6) * key_dim^-0.5,  k * rsqrt(sum k^2 + 1e-6)
//   beta = sigmoid(b);  log_decay = -exp(a_log) * softplus(a + dt_bias)
//   S <- S * exp(log_decay);  u = (v - S^T k) * beta;  S <- S + k u^T;  out = S^T q
// Everything in f32. Only exponentials of non-positive numbers are formed.
struct GatedDeltaArgs {
  GatedDeltaShape shape;
  View qkv;                          // [rows, 2 * key_heads * key_dim + value_heads * value_dim]: q | k | v, after convolution and SiLU
  View b;                            // [rows, value_heads]
  View a;                            // [rows, value_heads]
  const Buffer* a_log = nullptr;     // f32 [value_heads]
  const Buffer* dt_bias = nullptr;   // f32 [value_heads]
  const Buffer* state_in = nullptr;  // f32 [value_heads, key_dim, value_dim], read by every sequence
  Buffer* state_out = nullptr;       // null, or the state after the only sequence; not state_in
  const Sequences* sequences = nullptr;
  MutableView out;  // [rows, value_heads * value_dim]
};

struct AttentionShape {
  uint32_t query_heads = 0;
  uint32_t kv_heads = 0;  // divides query_heads; kv head of query head h is h / (query_heads / kv_heads)
  uint32_t head_dim = 0;
};

// What the squares of one RMSNorm of queries and keys are summed over: nothing (no norm, the weights are null), the head, or all heads of
// the row.
enum class QueryKeyNorm : uint8_t { none, per_head, whole_row };

// RMSNorm of queries and keys (by `norm` and `form`), then per head rotate-half RoPE on the first rotary_dim columns; values are copied.
//   y[i] = x[i] * cos[i] - x[i + r/2] * sin[i];  y[i + r/2] = x[i + r/2] * cos[i] + x[i] * sin[i]   for i < r/2
// q_gate holds, per query head, query | gate (2 * head_dim columns), or only the query when not `gated`. q_out.buffer null: only keys and
// values are made.
struct QkNormRopeArgs {
  AttentionShape shape;
  uint32_t rotary_dim = 0;  // even, <= head_dim
  float epsilon = 1e-6f;
  View q_gate;                       // [rows, query_heads * (gated ? 2 : 1) * head_dim] (ignored when q_out.buffer is null)
  View kv;                           // [rows, kv_heads * 2 * head_dim]: keys of all heads | values of all heads
  const Buffer* q_weight = nullptr;  // f32 [head_dim], of a whole row [query_heads * head_dim]
  const Buffer* k_weight = nullptr;  // f32 [head_dim], of a whole row [kv_heads * head_dim]
  View cosine;                       // [rows, rotary_dim / 2]
  View sine;                         // [rows, rotary_dim / 2]
  MutableView q_out;                 // [rows, query_heads * head_dim]
  MutableView k_out;                 // [rows, kv_heads * head_dim]
  MutableView v_out;                 // [rows, kv_heads * head_dim]
  bool gated = true;
  QueryKeyNorm norm = QueryKeyNorm::per_head;  // whole_row only where not gated
  NormWeight form = NormWeight::one_plus;
};

// softmax(q k^T * scale) v, then * sigmoid(gate). Row i of a sequence sees all prefix keys and the keys of rows <= i of its own sequence.
// Softmax in f32 with the running maximum subtracted. gate is the q_gate projection of QkNormRopeArgs (columns h * 2D + D ...).
struct AttentionArgs {
  AttentionShape shape;
  float scale = 0;
  View q;         // [rows, query_heads * head_dim]
  View q_gate;    // [rows, query_heads * 2 * head_dim]
  View prefix_k;  // [prefix rows, kv_heads * head_dim]; rows may be 0 (buffer may then be null)
  View prefix_v;
  View own_k;  // [rows, kv_heads * head_dim]; may be another part of the buffer that holds prefix_k
  View own_v;
  const Sequences* sequences = nullptr;
  MutableView out;  // [rows, query_heads * head_dim]
};

// out[i, :] = x[indices[i], :]. indices: u32 [out.rows], each < x.rows.
struct GatherRowsArgs {
  View x;
  const Buffer* indices = nullptr;
  MutableView out;
};

// scores[o] = dot(keys[o, :], queries[question_of_option[o], :]) * scale / temperature. The division comes last.
struct PointerScoresArgs {
  View queries;                                // [questions, width]
  View keys;                                   // [options, width]
  const Buffer* question_of_option = nullptr;  // u32 [options], each < questions
  float scale = 1;
  float temperature = 1;
  Buffer* scores = nullptr;  // f32 [options]
};

// Softmax of each segment of a vector, maximum subtracted. segment_starts: u32 [segments + 1], ascending, last = values.
struct SegmentSoftmaxArgs {
  const Buffer* values = nullptr;  // f32 [count]
  const Buffer* segment_starts = nullptr;
  uint32_t segments = 0;
  uint32_t count = 0;
  Buffer* out = nullptr;  // f32 [count]
};

// Copies bytes between buffers; offsets and size are multiples of 4. Source and target are different buffers.
struct CopyArgs {
  const Buffer* source = nullptr;
  uint64_t source_offset = 0;
  Buffer* target = nullptr;
  uint64_t target_offset = 0;
  uint64_t bytes = 0;
};

// --- Operations of language models ---

// out = (x - mean(x)) * rsqrt(variance(x) + epsilon) * weight + bias, variance over the row divided by cols. weight, bias: f32 [cols].
struct LayerNormArgs {
  View x;
  const Buffer* weight = nullptr;
  const Buffer* bias = nullptr;
  float epsilon = 1e-6f;
  MutableView out;  // same shape as x; may be the same view as x
};

// Which columns of a head turn together, r = rotary_dim: halves: i and i + r/2 (rotate-half). pairs: 2i and 2i + 1 (interleaved).
enum class RopeForm { halves, pairs };

// Rotary position embedding of `heads` heads of head_dim columns, laid side by side. Of each head the columns [first, first + rotary_dim)
// turn by the row's angles; the others are copied. With a, b the columns that turn together: a' = a cos[i] - b sin[i], b' = b cos[i] + a
// sin[i].
struct RopeArgs {
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  uint32_t first = 0;
  uint32_t rotary_dim = 0;  // even; first + rotary_dim <= head_dim
  RopeForm form = RopeForm::halves;
  View x;           // [rows, heads * head_dim]
  View cosine;      // [rows, rotary_dim / 2]
  View sine;        // [rows, rotary_dim / 2]
  MutableView out;  // same shape as x; may be the same view as x
};

// A product per head: out[r, h * N + n] = sum_k x[r, h * x_head_stride + k] * w[h * N + n, k], N = weight.rows / heads, K = weight.cols.
// The order of a sum depends on K alone. Precision as `linear` without splitting into f16 terms.
struct HeadLinearArgs {
  uint32_t heads = 0;
  uint32_t x_head_stride = 0;  // elements between the inputs of two heads, >= K
  View x;                      // [rows, cols]; (heads - 1) * x_head_stride + K <= cols
  const Weight* weight = nullptr;
  MutableView out;  // [rows, weight.rows]
};

// softmax(q k^T * scale) v of one sequence, causal, over keys that already hold the rows' own: row i stands at position
// p = keys.rows - rows + i and sees the keys j <= p, of them only j > p - window when window > 0, and of them only those whose bit is set
// in `selected` when it is given. kv head of query head h is h / (query_heads / kv_heads). sinks: one more logit per query head (not
// scaled) that takes part in the softmax and has no value. Softmax in f32 with the maximum subtracted. Every row sees at least one key.
// The order of a row's sums depends on its position alone, not on the rows of the call.
struct AttendArgs {
  uint32_t query_heads = 0;
  uint32_t kv_heads = 0;  // divides query_heads
  uint32_t key_dim = 0;
  uint32_t value_dim = 0;
  float scale = 0;
  uint32_t window = 0;               // 0: all
  View q;                            // [rows, query_heads * key_dim]
  View keys;                         // [keys, kv_heads * key_dim]
  View values;                       // [keys, kv_heads * value_dim]; may be columns of the same buffer as keys
  const Buffer* sinks = nullptr;     // f32 [query_heads], or null
  const Buffer* selected = nullptr;  // u32 [rows, ceil(keys / 32)], bit j % 32 of word j / 32 is key j; or null
  MutableView out;                   // [rows, query_heads * value_dim]
};

// Sparse attention's choice of keys (DeepSeek-V3.2). Row i at position p = keys.rows - rows + i scores the keys s <= p:
//   score[s] = sum_h weights[i, h] * max(0, q[i, h] . k[s] * scale)
// and selects the top_k of the largest score (all when there are no more). Of equal scores, those that the reference takes from a list of
// max(horizon, p + 1) entries, of which it sees the first p + 1 (kernels/select_keys/tie_order.h).
struct SelectKeysArgs {
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  uint32_t top_k = 0;
  float scale = 1;
  View q;                      // [rows, heads * head_dim]
  View keys;                   // [keys, head_dim]
  View weights;                // [rows, heads]
  Buffer* selected = nullptr;  // u32 [rows, ceil(keys / 32)], as AttendArgs reads it
  uint32_t horizon = 0;        // tokens of the text that the rows belong to, as far as it is known
};

// --- Mixture of experts ---

inline constexpr uint32_t kNoSlot = 0xffffffffu;
inline constexpr uint32_t kExpertsPerTokenMax = 32;

enum class RouterScore { softmax, sigmoid };

// Picks top_k experts a row. s = softmax or sigmoid of the logits. The choice goes by c = s + bias: with groups > 1 the experts stand in
// `groups` equal runs, a group counts the sum of its two largest c, and only the groups_kept best groups take part. Of equals the lower
// index wins, for groups and experts. weight = s of the chosen; with renormalise divided by (their sum + 1e-20); times scale.
// Chosen experts are ordered by falling c: rank 0 first. A row with a logit or bias that is not finite gets kNoSlot and NaN weights.
struct RouterArgs {
  View logits;                   // [rows, experts]
  const Buffer* bias = nullptr;  // f32 [experts], or null
  RouterScore score = RouterScore::softmax;
  uint32_t groups = 1;  // divides experts; a group has at least two when there are several
  uint32_t groups_kept = 1;
  uint32_t top_k = 0;  // <= kExpertsPerTokenMax, <= experts of the kept groups
  bool renormalise = false;
  float scale = 1;
  Buffer* experts = nullptr;  // u32 [rows * top_k]
  Buffer* weights = nullptr;  // f32 [rows * top_k]
};

// swiglu: silu(g) * u. clamped_swiglu (gpt-oss): g = min(g, limit), u = clamp(u, -limit, limit): g * sigmoid(alpha * g) * (u + 1).
enum class ExpertActivation { swiglu, clamped_swiglu };

// The expert networks of a layer on routed rows: out[route] = down(act(gate(x), up(x))) with the expert in slot slots[route] of the bank
// on row x[route / top_k]. Routes with kNoSlot leave their row of `out` as it is; other slots are < bank.slots() (the caller's promise;
// backends skip what is not). Sums in f32; the order of a sum depends on the row count of x at most, never on slots or other routes.
struct ExpertFfnArgs {
  const ExpertBank* bank = nullptr;
  uint32_t top_k = 0;
  ExpertActivation activation = ExpertActivation::swiglu;
  float alpha = 1.702f;
  float limit = 7.0f;
  View x;                         // [rows, hidden]
  const Buffer* slots = nullptr;  // u32 [rows * top_k]
  MutableView out;                // [rows * top_k, hidden]
};

// out[r] += sum_j weights[r * top_k + j] * routed[r * top_k + j], j ascending (the rank order), summed before it meets `out`;
// with shared: out[r] += sigmoid(shared_gate[r]) * shared[r] (factor 1 without shared_gate) after that.
struct CombineRoutesArgs {
  uint32_t top_k = 0;
  View routed;                      // [rows * top_k, hidden]
  const Buffer* weights = nullptr;  // f32 [rows * top_k]
  View shared;                      // [rows, hidden], or buffer null
  View shared_gate;                 // [rows, 1], or buffer null
  MutableView out;                  // [rows, hidden]
};

// --- Choosing a token ---

// indices[r] = the column of the largest value of row r, the lowest of equals; 0xffffffff when the row holds a NaN.
struct ArgmaxArgs {
  View x;
  Buffer* indices = nullptr;  // u32 [rows]
};

// How a row is sampled. Order: temperature, top_k, top_p, min_p, then one draw.
struct SampleRow {
  float temperature = 1;  // > 0
  uint32_t top_k = 0;     // 0: all
  float top_p = 1;        // the smallest set of the most probable tokens whose probabilities (after top_k) sum to at least top_p
  float min_p = 0;        // only tokens with at least min_p of the most probable one's probability
  uint32_t seed_low = 0, seed_high = 0;
  uint32_t step = 0;  // the draw is a function of seed and step alone
  uint32_t padding = 0;
};

inline constexpr uint32_t kSampleVocabularyMax = 1u << 20;

// indices[r]: a token drawn from row r of logits as rows[r] says; 0xffffffff when the row holds a NaN.
// The draw u in [0, 1) comes from seed and step (the first word of Philox 4x32-10 of Salmon et al. 2011, times 2^-32; counter = step, key =
// seed); the token is the first, by falling logit (of equals the lower index), at which the running sum of the kept and renormalised
// probabilities exceeds u. Every filter keeps a beginning of that order, and always its first token. Probabilities carry an error of a few
// roundings of f32 (the exponent's and the exponential's) and 2^-37 of the largest; equal logits have equal ones.
struct SampleArgs {
  View logits;                   // [rows, vocabulary], vocabulary <= kSampleVocabularyMax
  const Buffer* rows = nullptr;  // SampleRow [rows]
  Buffer* indices = nullptr;     // u32 [rows]
};

}  // namespace chorus::compute
