// Stages 1 to 19 of sample.wgsl.
const kLevels: u32 = 6u;
const kLastPlace: u32 = 0xfffffu;  // a token's rank is this minus its index: the lower index comes first
const kNegativeInfinity: u32 = 0x007fffffu;  // as order keys
const kInfinity: u32 = 0xff800000u;

struct State {
  largest: u32,      // order key of the row's largest logit
  goal: vec2<u32>,   // what is left of it below the digits found
  key: u32,          // digits found of the place looked for
  rank: u32,
  cut_key: u32,      // tokens from this place up are kept
  cut_rank: u32,
}

var<workgroup> shared_state: State;
var<workgroup> bins: array<atomic<u32>, 3072>;

fn read_state(at: u32) -> State {
  return State(states[at], vec2<u32>(states[at + 1u], states[at + 2u]), states[at + 3u], states[at + 4u], states[at + 5u], states[at + 6u]);
}

fn write_state(at: u32, state: State) {
  states[at] = state.largest;
  states[at + 1u] = state.goal.x;
  states[at + 2u] = state.goal.y;
  states[at + 3u] = state.key;
  states[at + 4u] = state.rank;
  states[at + 5u] = state.cut_key;
  states[at + 6u] = state.cut_rank;
}

// --- 64-bit numbers as (low, high) ---

fn add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn subtract(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

fn less(a: vec2<u32>, b: vec2<u32>) -> bool {
  return a.y < b.y || (a.y == b.y && a.x < b.x);
}

fn multiply(a: u32, b: u32) -> vec2<u32> {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let middle_a = (a >> 16u) * (b & 0xffffu);
  let middle_b = (a & 0xffffu) * (b >> 16u);
  let high = (a >> 16u) * (b >> 16u);
  let sum = add(add(vec2<u32>(low, high), vec2<u32>(middle_a << 16u, middle_a >> 16u)), vec2<u32>(middle_b << 16u, middle_b >> 16u));
  return sum;
}

// (floor(value * fraction / 2^32), whether a rest was left)
fn part_of(value: vec2<u32>, fraction: u32) -> vec3<u32> {
  let low = multiply(value.x, fraction);
  let part = add(multiply(value.y, fraction), vec2<u32>(low.y, 0u));
  return vec3<u32>(part, select(0u, 1u, low.x != 0u));
}

// First word of Philox 4x32-10 with counter (step, 0, 0, 0).
fn philox(row: SampleRow) -> u32 {
  var counter = vec4<u32>(row.step, 0u, 0u, 0u);
  var key = vec2<u32>(row.seed_low, row.seed_high);
  for (var round = 0u; round < 10u; round++) {
    let first = multiply(0xD2511F53u, counter.x);
    let second = multiply(0xCD9E8D57u, counter.z);
    counter = vec4<u32>(second.y ^ counter.y ^ key.x, second.x, first.y ^ counter.w ^ key.y, first.x);
    key += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
  }
  return counter.x;
}

// --- The three searches: 0 top_k, 1 top_p, 2 the draw ---

fn is_skipped(search: u32, row: SampleRow) -> bool {
  if (search == 0u) {
    return row.top_k == 0u || row.top_k >= params.vocabulary;
  }
  return search == 1u && !(row.top_p < 1.0);
}

// The running sum at which the token looked for is reached; total: of all kept tokens.
fn goal_of(search: u32, row: SampleRow, total: vec2<u32>) -> vec2<u32> {
  if (search == 0u) {
    return vec2<u32>(row.top_k, 0u);
  }
  if (search == 1u) {
    let part = part_of(total, u32(clamp(row.top_p, 0.0, 0.99999994) * 4294967296.0));
    let goal = add(part.xy, vec2<u32>(part.z, 0u));
    return select(goal, vec2<u32>(1u, 0u), all(goal == vec2<u32>()));
  }
  return add(part_of(total, philox(row)).xy, vec2<u32>(1u, 0u));
}

// A weight in three digits of 12 bits, lowest first.
fn weight_of(search: u32, row: SampleRow, state: State, bits: u32, key: u32) -> vec3<u32> {
  if (search == 0u) {
    return vec3<u32>(1u, 0u, 0u);
  }
  if (key == state.largest) {
    return vec3<u32>(4095u);
  }
  if (key <= kNegativeInfinity || state.largest == kInfinity) {
    return vec3<u32>();
  }
  let largest = bitcast<f32>(select(~state.largest, state.largest ^ 0x80000000u, state.largest >= 0x80000000u));
  let exponent = (bitcast<f32>(bits) - largest) / row.temperature;
  if (!(exponent > -26.0)) {
    return vec3<u32>();
  }
  let weight = min(exp(exponent), 0.99999994);
  if (search == 2u && weight < row.min_p) {
    return vec3<u32>();
  }
  let scaled = weight * 16777216.0;
  let upper = u32(scaled);
  let rest = u32((scaled - f32(upper)) * 4096.0 + 0.5);
  return vec3<u32>(min(rest, 4095u), upper & 4095u, upper >> 12u);
}

fn digit_of(level: u32, key: u32, rank: u32) -> u32 {
  switch (level) {
    case 0u: { return key >> 22u; }
    case 1u: { return (key >> 12u) & 1023u; }
    case 2u: { return (key >> 2u) & 1023u; }
    case 3u: { return ((key & 3u) << 8u) | (rank >> 12u); }
    case 4u: { return (rank >> 2u) & 1023u; }
    default: { return rank & 3u; }
  }
}

// What of (key, rank) is found before `level`.
fn mask_before(level: u32) -> vec2<u32> {
  switch (level) {
    case 0u: { return vec2<u32>(); }
    case 1u: { return vec2<u32>(0xffc00000u, 0u); }
    case 2u: { return vec2<u32>(0xfffff000u, 0u); }
    case 3u: { return vec2<u32>(0xfffffffcu, 0u); }
    case 4u: { return vec2<u32>(0xffffffffu, 0xff000u); }
    default: { return vec2<u32>(0xffffffffu, 0xffffcu); }
  }
}

// (key, rank) of a digit.
fn place_of_digit(level: u32, digit: u32) -> vec2<u32> {
  switch (level) {
    case 0u: { return vec2<u32>(digit << 22u, 0u); }
    case 1u: { return vec2<u32>(digit << 12u, 0u); }
    case 2u: { return vec2<u32>(digit << 2u, 0u); }
    case 3u: { return vec2<u32>(digit >> 8u, (digit & 255u) << 12u); }
    case 4u: { return vec2<u32>(0u, digit << 2u); }
    default: { return vec2<u32>(0u, digit); }
  }
}

fn bin_of(histogram: u32, digit: u32) -> vec2<u32> {
  let at = histogram + digit * 3u;
  let low = atomicLoad(&histograms[at]);
  let middle = atomicLoad(&histograms[at + 1u]);
  let high = atomicLoad(&histograms[at + 2u]);
  return add(vec2<u32>(low, 0u), add(vec2<u32>(middle << 12u, middle >> 20u), vec2<u32>(high << 24u, high >> 8u)));
}

// Picks the digit at which the running sum, from the highest digit down, reaches the goal; into shared_state.
fn pick(row: u32, thread: u32, search: u32, level: u32, sampling_row: SampleRow, state: State) {
  let histogram = histogram_of(row, params.stage - 1u);
  let first = kDigits - 1u - thread * 4u;  // four digits a thread, falling
  var sum = vec2<u32>();
  for (var i = 0u; i < 4u; i++) {
    sum = add(sum, bin_of(histogram, first - i));
  }
  scan[thread] = sum;
  for (var step = 1u; step < kThreads; step *= 2u) {
    workgroupBarrier();
    var other = vec2<u32>();
    if (thread >= step) {
      other = scan[thread - step];
    }
    workgroupBarrier();
    scan[thread] = add(scan[thread], other);
  }
  workgroupBarrier();
  var goal = state.goal;
  if (level == 0u) {
    goal = goal_of(search, sampling_row, scan[kThreads - 1u]);
  }
  var running = subtract(scan[thread], sum);
  if (!less(running, goal) || less(scan[thread], goal)) {
    return;
  }
  // One thread comes here.
  for (var i = 0u; i < 4u; i++) {
    let next = add(running, bin_of(histogram, first - i));
    if (!less(next, goal)) {
      let place = vec2<u32>(state.key, state.rank) | place_of_digit(level, first - i);
      shared_state.goal = subtract(goal, running);
      shared_state.key = select(place.x, 0u, level == kLevels - 1u);
      shared_state.rank = select(place.y, 0u, level == kLevels - 1u);
      if (level == kLevels - 1u) {
        shared_state.cut_key = place.x;
        shared_state.cut_rank = place.y;
      }
      return;
    }
    running = next;
  }
}

fn fill(row: u32, piece: u32, thread: u32, search: u32, level: u32, sampling_row: SampleRow, state: State) {
  for (var i = thread; i < kHistogramWords; i += kThreads) {
    atomicStore(&bins[i], 0u);
  }
  workgroupBarrier();
  let mask = mask_before(level);
  let last = min((piece + 1u) * params.piece, params.vocabulary);
  for (var i = piece * params.piece + thread; i < last; i += kThreads) {
    let bits = logits[params.logits_offset + row * params.logits_stride + i];
    let key = order_key(bits);
    let rank = kLastPlace - i;
    let is_kept = key > state.cut_key || (key == state.cut_key && rank >= state.cut_rank);
    if (!is_kept || (key & mask.x) != state.key || (rank & mask.y) != state.rank) {
      continue;
    }
    let weight = weight_of(search, sampling_row, state, bits, key);
    let at = digit_of(level, key, rank) * 3u;
    if (weight.x != 0u) {
      atomicAdd(&bins[at], weight.x);
    }
    if (weight.y != 0u) {
      atomicAdd(&bins[at + 1u], weight.y);
    }
    if (weight.z != 0u) {
      atomicAdd(&bins[at + 2u], weight.z);
    }
  }
  workgroupBarrier();
  let histogram = histogram_of(row, params.stage);
  for (var i = thread; i < kHistogramWords; i += kThreads) {
    let sum = atomicLoad(&bins[i]);
    if (sum != 0u) {
      atomicAdd(&histograms[histogram + i], sum);
    }
  }
}

fn run_step(row: u32, piece: u32, thread: u32) {
  let sampling_row = sampling[params.first_row + row];
  let state_at = row * params.row_words;
  if (params.stage == 1u) {
    var largest = 0u;
    for (var i = thread; i < params.row_pieces; i += kThreads) {
      largest = max(largest, states[state_at + 2u * kSlotWords + i]);
    }
    largest = largest_of_workgroup(thread, largest);
    if (thread == 0u) {
      shared_state = State(largest, vec2<u32>(), 0u, 0u, 0u, 0u);
    }
  } else if (thread == 0u) {
    shared_state = read_state(state_at + (params.stage - 1u) % 2u * kSlotWords);
  }
  var state = workgroupUniformLoad(&shared_state);
  let is_number = state.largest != kNanKey;
  if (params.stage > 1u) {
    let before = params.stage - 2u;
    if (is_number && !is_skipped(before / kLevels, sampling_row)) {
      pick(row, thread, before / kLevels, before % kLevels, sampling_row, state);
      state = workgroupUniformLoad(&shared_state);
    }
  }
  if (params.stage == 3u * kLevels + 1u) {
    if (thread == 0u) {
      indices[params.first_row + row] = select(0xffffffffu, kLastPlace - state.cut_rank, is_number);
    }
    return;
  }
  if (piece == 0u && thread == 0u) {
    write_state(state_at + params.stage % 2u * kSlotWords, state);
  }
  let now = params.stage - 1u;
  if (is_number && !is_skipped(now / kLevels, sampling_row)) {
    fill(row, piece, thread, now / kLevels, now % kLevels, sampling_row, state);
  }
}
