// The router: one workgroup a row. Scores go to workgroup memory; then each expert counts those that come before it, which is its rank.
struct Params {
  rows: u32,
  experts: u32,
  logits_offset: u32,
  logits_stride: u32,
  top_k: u32,
  groups: u32,
  groups_kept: u32,
  flags: u32,
  scale: f32,
  route_first: u32,  // of the slice, in the outputs
  padding_0: u32,
  padding_1: u32,
}

const flag_sigmoid: u32 = 1;
const flag_bias: u32 = 2;
const flag_renormalise: u32 = 4;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> experts: array<u32>;
@group(0) @binding(4) var<storage, read_write> weights: array<f32>;

const threads: u32 = 256;
const experts_max: u32 = 2048;
const top_k_max: u32 = 32;
const lowest: f32 = -3.40282346638528859812e+38;
const no_slot: u32 = 0xffffffffu;

var<workgroup> choice: array<f32, experts_max>;
var<workgroup> group_ranks: array<f32, experts_max / 2u>;
var<workgroup> chosen: array<f32, top_k_max>;
var<workgroup> parts: array<f32, threads>;
var<workgroup> failed: atomic<u32>;

//@include common/logistic.wgsl

fn is_finite(value: f32) -> bool {
  return (bitcast<u32>(value) & 0x7f800000u) != 0x7f800000u;
}

// The result of a tree over parts[0 .. threads).
fn add_parts(thread: u32) -> f32 {
  for (var half = threads / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (thread < half) {
      parts[thread] += parts[thread + half];
    }
  }
  workgroupBarrier();
  let sum = parts[0];
  workgroupBarrier();
  return sum;
}

fn largest_part(thread: u32) -> f32 {
  for (var half = threads / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (thread < half) {
      parts[thread] = max(parts[thread], parts[thread + half]);
    }
  }
  workgroupBarrier();
  let largest = parts[0];
  workgroupBarrier();
  return largest;
}

// Whether a value in front of `index` stands before `own` in the order: the larger first, of equals the lower index.
fn before(other: f32, other_index: u32, own: f32, index: u32) -> u32 {
  return select(0u, 1u, other > own || (other == own && other_index < index));
}

fn leave_best_groups(thread: u32) {
  let size = params.experts / params.groups;
  for (var group = thread; group < params.groups; group += threads) {
    var first = lowest;
    var second = lowest;
    for (var member = 0u; member < size; member++) {
      let value = choice[group * size + member];
      second = max(second, min(first, value));
      first = max(first, value);
    }
    group_ranks[group] = first + second;
  }
  workgroupBarrier();
  for (var expert = thread; expert < params.experts; expert += threads) {
    let group = expert / size;
    let own = group_ranks[group];
    var rank = 0u;
    for (var other = 0u; other < params.groups; other++) {
      rank += before(group_ranks[other], other, own, group);
    }
    if (rank >= params.groups_kept) {
      choice[expert] = lowest;
    }
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let row = workgroup.x + workgroup.y * grid.x;
  if (row >= params.rows) {
    return;
  }
  let at = params.logits_offset + row * params.logits_stride;
  let out = params.route_first + row * params.top_k;
  let sigmoid = (params.flags & flag_sigmoid) != 0u;
  let biased = (params.flags & flag_bias) != 0u;

  if (thread == 0u) {
    atomicStore(&failed, 0u);
  }
  workgroupBarrier();
  parts[thread] = lowest;
  for (var expert = thread; expert < params.experts; expert += threads) {
    let logit = logits[at + expert];
    if (!is_finite(logit) || (biased && !is_finite(bias[expert]))) {
      atomicStore(&failed, 1u);
    }
    parts[thread] = max(parts[thread], logit);
  }
  let largest = largest_part(thread);
  if (workgroupUniformLoad(&failed) != 0u) {
    if (thread < params.top_k) {
      experts[out + thread] = no_slot;
      weights[out + thread] = bitcast<f32>(0x7fc00000u | params.rows);  // a NaN that is no constant expression
    }
    return;
  }

  var sum = 0.0;
  for (var expert = thread; expert < params.experts; expert += threads) {
    let logit = logits[at + expert];
    var score = 0.0;
    if (sigmoid) {
      score = logistic(logit);
    } else {
      score = exp(logit - largest);
    }
    choice[expert] = score;
    sum += score;
  }
  parts[thread] = sum;
  let divisor = select(add_parts(thread), 1.0, sigmoid);
  for (var expert = thread; expert < params.experts; expert += threads) {
    choice[expert] /= divisor;
    if (biased) {
      choice[expert] += bias[expert];
    }
  }
  workgroupBarrier();
  if (params.groups > 1u) {
    leave_best_groups(thread);
    workgroupBarrier();
  }
  for (var expert = thread; expert < params.experts; expert += threads) {
    let own = choice[expert];
    var rank = 0u;
    for (var other = 0u; other < params.experts; other++) {
      rank += before(choice[other], other, own, expert);
    }
    if (rank < params.top_k) {
      let logit = logits[at + expert];
      var score = 0.0;
      if (sigmoid) {
        score = logistic(logit);
      } else {
        score = exp(logit - largest) / divisor;
      }
      experts[out + rank] = expert;
      chosen[rank] = score;
    }
  }
  workgroupBarrier();
  if (thread < params.top_k) {
    var total = 0.0;
    for (var rank = 0u; rank < params.top_k; rank++) {
      total += chosen[rank];
    }
    let renormalise = (params.flags & flag_renormalise) != 0u;
    weights[out + thread] = chosen[thread] / select(1.0, total + 1e-20, renormalise) * params.scale;
  }
}
