// Sequential half of the chunked gated delta rule: one workgroup per (sequence, value head, block of value columns) keeps its columns
// of the state S in workgroup memory and walks the chunks:
//   V' = U - W S;   O = 2^g (q S) + A V';   S <- 2^(g_end) S + k^T (2^(g_end - g) V')
// The matrices W | q, A and k come in pieces of $PIECE vec4s; each thread fetches four of the next piece while it works on this one.
//@include gated_delta/params.wgsl

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> spans: array<vec2<u32>>;     // start, length
@group(0) @binding(2) var<storage, read> scratch: array<vec4<f32>>;   // what gated_delta_prepare wrote
@group(0) @binding(3) var<storage, read> state_in: array<vec4<f32>>;  // [value_heads, key_dim, value_dim]
@group(0) @binding(4) var<storage, read_write> output: array<f32>;
@group(0) @binding(5) var<storage, read_write> state_out: array<vec4<f32>>;  //@if STATE=yes

const kChunk = 64u;
const kColumns = u32($COLUMNS);
const kSplit = u32($SPLIT);
const kThreads = u32($THREADS);
const kPiece = u32($PIECE);
const kKeys = u32($KEYS);
const kStateColumn = kKeys + 1u;
const kPieceKeys = kPiece / 32u;    // keys of W | q in a piece
const kPieceTokens = kPiece / 16u;  // columns of A in a piece
const kPartKeys = 4u / kSplit;      // of every four keys, those of one part
const kTiles = 16u * kColumns;      // 4x4 tiles of a 64-row product

// S by column group, then key mod 4, then key / 4: neighbouring threads update neighbouring key groups.
var<workgroup> state: array<vec4<f32>, kStateColumn * kColumns>;
var<workgroup> values: array<vec4<f32>, kChunk * kColumns>;  // V', [token][column group]
var<workgroup> piece: array<vec4<f32>, kPiece>;

fn state_index(key: u32, column: u32) -> u32 { return column * kStateColumn + (key % 4u) * (kKeys / 4u) + key / 4u; }

struct Task {
  head: u32,
  key_head: u32,
  slot: u32,      // of the sequence's first chunk
  chunks: u32,
  length: u32,
  updates: bool,  // the state after the last chunk is wanted
}

// Pieces of one chunk: W | q, then A, then k.
struct Pieces {
  products: u32,
  attention: u32,
  updates: u32,
}

fn update_tokens() -> u32 { return min(kChunk, kPiece / params.key_width); }

fn count_pieces(task: Task, chunk: u32) -> Pieces {
  let rows = min(kChunk, task.length - chunk * kChunk);
  var pieces = Pieces((params.key_width * 4u + kPieceKeys - 1u) / kPieceKeys, (rows + kPieceTokens - 1u) / kPieceTokens, 0u);
  if (task.updates || chunk + 1u < task.chunks) { pieces.updates = (rows + update_tokens() - 1u) / update_tokens(); }
  return pieces;
}

// Element `at` of piece `index` of a chunk; zeros past the last key and the last token.
fn fetch(task: Task, pieces: Pieces, chunk: u32, index: u32, at: u32) -> vec4<f32> {
  let pair = (task.slot + chunk) * params.value_heads + task.head;
  let key_pair = (task.slot + chunk) * params.key_heads + task.key_head;
  var source: u32;
  var inside = true;
  if (index < pieces.products) {
    let key = index * kPieceKeys + at / 32u;
    let row = at % 32u;
    let matrix = select(params.q_base + key_pair * params.key_width * 64u - 16u, params.w_base + pair * params.key_width * 64u, row < 16u);
    source = matrix + key * 16u + row;
    inside = key < params.key_width * 4u;
  } else if (index < pieces.products + pieces.attention) {
    source = params.a_matrix_base + pair * 1024u + (index - pieces.products) * kPiece + at;
  } else {
    let size = update_tokens() * params.key_width;
    let element = (index - pieces.products - pieces.attention) * size + at;
    source = params.k_base + key_pair * kChunk * params.key_width + element;
    inside = at < size && element < kChunk * params.key_width;
  }
  if (!inside) { return vec4<f32>(0.0); }
  return scratch[source];
}

fn load_state(thread: u32, head: u32, column_begin: u32) {
  for (var at = thread; at < kKeys * kColumns; at += kThreads) {
    let key = at / kColumns;
    let column = at % kColumns;
    var value = vec4<f32>(0.0);
    if (key < params.key_width * 4u && column_begin + column < params.value_width) {
      value = state_in[(head * params.key_width * 4u + key) * params.value_width + column_begin + column];
    }
    state[state_index(key, column)] = value;
  }
}

fn write_output(row: u32, column: u32, value: vec4<f32>) {
  let at = params.out_offset + row * params.out_stride + column;
  output[at] = value.x;
  output[at + 1u] = value.y;
  output[at + 2u] = value.z;
  output[at + 3u] = value.w;
}

@compute @workgroup_size($THREADS)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let index = workgroup.x + workgroup.y * groups.x;
  if (index >= params.workgroups) { return; }
  let column_begin = (index % params.column_blocks) * kColumns;
  let sequence = params.first_sequence + index / (params.column_blocks * params.value_heads);
  let span = spans[sequence];
  if (span.y < params.min_length || span.y > params.max_length) { return; }
  var task: Task;
  task.head = (index / params.column_blocks) % params.value_heads;
  task.key_head = task.head / params.heads_per_key;
  task.slot = (span.x - spans[params.first_sequence].x) / kChunk + sequence - params.first_sequence;
  task.length = 0u;
  if (span.y > params.token_begin) { task.length = min(span.y - params.token_begin, params.token_count); }
  task.chunks = (task.length + kChunk - 1u) / kChunk;
  task.updates = false;  //@if STATE=no
  task.updates = true;  //@if STATE=yes
  let first_row = span.x + params.token_begin;

  // This thread's 4x4 tile of the 64-row products: rows 4 * row_group ..., columns of group `column`; part `part` of the inner sum.
  let row_group = thread % 8u + 8u * ((thread / (8u * kColumns)) % 2u);
  let column = (thread / 8u) % kColumns;
  let part = thread / kTiles;
  let tile = thread % kTiles;
  let inside = column_begin + column < params.value_width;
  // Its tile (or tiles) of the state update.
  let update_threads = kThreads / params.key_split;
  let update_part = thread / update_threads;
  let update_thread = thread % update_threads;
  let update_tiles = params.key_width * kColumns;

  load_state(thread, task.head, column_begin);
  var r0 = vec4<f32>(0.0);
  var r1 = vec4<f32>(0.0);
  var r2 = vec4<f32>(0.0);
  var r3 = vec4<f32>(0.0);
  if (task.chunks > 0u) {
    let pieces = count_pieces(task, 0u);
    r0 = fetch(task, pieces, 0u, 0u, thread);
    r1 = fetch(task, pieces, 0u, 0u, thread + kThreads);
    r2 = fetch(task, pieces, 0u, 0u, thread + 2u * kThreads);
    r3 = fetch(task, pieces, 0u, 0u, thread + 3u * kThreads);
  }

  for (var chunk = 0u; chunk < task.chunks; chunk++) {
    let rows = min(kChunk, task.length - chunk * kChunk);
    let pieces = count_pieces(task, chunk);
    let total = pieces.products + pieces.attention + pieces.updates;
    let pair = (task.slot + chunk) * params.value_heads + task.head;
    let gate_at = params.gate_base + pair * 36u;
    let out_scale = scratch[gate_at + row_group];
    let decay = scratch[gate_at + 32u].x;
    var u0 = vec4<f32>(0.0);
    var u1 = vec4<f32>(0.0);
    var u2 = vec4<f32>(0.0);
    var u3 = vec4<f32>(0.0);
    if (part == 0u && inside) {
      let at = params.u_base + (pair * kChunk + row_group * 4u) * params.value_width + column_begin + column;
      u0 = scratch[at];
      u1 = scratch[at + params.value_width];
      u2 = scratch[at + 2u * params.value_width];
      u3 = scratch[at + 3u * params.value_width];
    }
    var w0 = vec4<f32>(0.0);
    var w1 = vec4<f32>(0.0);
    var w2 = vec4<f32>(0.0);
    var w3 = vec4<f32>(0.0);
    var o0 = vec4<f32>(0.0);
    var o1 = vec4<f32>(0.0);
    var o2 = vec4<f32>(0.0);
    var o3 = vec4<f32>(0.0);

    for (var step = 0u; step < total; step++) {
      workgroupBarrier();
      piece[thread] = r0;
      piece[thread + kThreads] = r1;
      piece[thread + 2u * kThreads] = r2;
      piece[thread + 3u * kThreads] = r3;
      workgroupBarrier();
      let same_chunk = step + 1u < total;
      let next_chunk = select(chunk + 1u, chunk, same_chunk);
      if (next_chunk < task.chunks) {
        let next_pieces = count_pieces(task, next_chunk);
        let next_step = select(0u, step + 1u, same_chunk);
        r0 = fetch(task, next_pieces, next_chunk, next_step, thread);
        r1 = fetch(task, next_pieces, next_chunk, next_step, thread + kThreads);
        r2 = fetch(task, next_pieces, next_chunk, next_step, thread + 2u * kThreads);
        r3 = fetch(task, next_pieces, next_chunk, next_step, thread + 3u * kThreads);
      }

      if (step < pieces.products) {
        // Of every group of four keys this part takes kPartKeys.
        let state_at = column * kStateColumn + part * kPartKeys * (kKeys / 4u) + step * (kPieceKeys / 4u);
        let piece_at = part * kPartKeys * 32u + row_group;
        for (var group = 0u; group < kPieceKeys / 4u; group++) {
          for (var i = 0u; i < kPartKeys; i++) {
            let s = state[state_at + i * (kKeys / 4u) + group];
            let w = piece[piece_at + (group * 4u + i) * 32u];
            let q = piece[piece_at + (group * 4u + i) * 32u + 16u];
            w0 += w.x * s;
            w1 += w.y * s;
            w2 += w.z * s;
            w3 += w.w * s;
            o0 += q.x * s;
            o1 += q.y * s;
            o2 += q.z * s;
            o3 += q.w * s;
          }
        }
        if (step + 1u == pieces.products) {
          workgroupBarrier();
          if (part > 0u) {
            let at = (part - 1u) * 4u * kTiles + tile;
            piece[at] = w0;
            piece[at + kTiles] = w1;
            piece[at + 2u * kTiles] = w2;
            piece[at + 3u * kTiles] = w3;
          }
          workgroupBarrier();
          if (part == 0u) {
            for (var other = 0u; other < kSplit - 1u; other++) {
              let at = other * 4u * kTiles + tile;
              w0 += piece[at];
              w1 += piece[at + kTiles];
              w2 += piece[at + 2u * kTiles];
              w3 += piece[at + 3u * kTiles];
            }
            let at = row_group * 4u * kColumns + column;
            values[at] = u0 - w0;
            values[at + kColumns] = u1 - w1;
            values[at + 2u * kColumns] = u2 - w2;
            values[at + 3u * kColumns] = u3 - w3;
          }
          o0 *= out_scale.x;
          o1 *= out_scale.y;
          o2 *= out_scale.z;
          o3 *= out_scale.w;
        }
      } else if (step < pieces.products + pieces.attention) {
        let begin = (step - pieces.products) * kPieceTokens;
        let end = min(begin + kPieceTokens, min(row_group * 4u + 4u, rows));
        for (var token = begin + part; token < end; token += kSplit) {
          let a = piece[(token - begin) * 16u + row_group];
          let v = values[token * kColumns + column];
          o0 += a.x * v;
          o1 += a.y * v;
          o2 += a.z * v;
          o3 += a.w * v;
        }
        if (step + 1u == pieces.products + pieces.attention) {
          workgroupBarrier();
          if (part > 0u) {
            let at = (part - 1u) * 4u * kTiles + tile;
            piece[at] = o0;
            piece[at + kTiles] = o1;
            piece[at + 2u * kTiles] = o2;
            piece[at + 3u * kTiles] = o3;
          }
          for (var at = thread; at < kChunk * kColumns; at += kThreads) {
            let token = at / kColumns;
            values[at] *= scratch[gate_at + 16u + token / 4u][token % 4u];
          }
          workgroupBarrier();
          if (part == 0u && inside) {
            for (var other = 0u; other < kSplit - 1u; other++) {
              let at = other * 4u * kTiles + tile;
              o0 += piece[at];
              o1 += piece[at + kTiles];
              o2 += piece[at + 2u * kTiles];
              o3 += piece[at + 3u * kTiles];
            }
            let row = row_group * 4u;
            let at = first_row + chunk * kChunk + row;
            let out_column = (task.head * params.value_width + column_begin + column) * 4u;
            if (row < rows) { write_output(at, out_column, o0); }
            if (row + 1u < rows) { write_output(at + 1u, out_column, o1); }
            if (row + 2u < rows) { write_output(at + 2u, out_column, o2); }
            if (row + 3u < rows) { write_output(at + 3u, out_column, o3); }
          }
        }
      } else {
        let first_piece = step == pieces.products + pieces.attention;
        let scale = select(1.0, decay, first_piece);
        let begin = (step - pieces.products - pieces.attention) * update_tokens();
        let count = min(update_tokens(), rows - begin);
        // One part: each tile is summed and stored. Several: each thread has one tile at most, and the parts add theirs in turn.
        for (var at = update_thread; at < update_tiles; at += update_threads) {
          let key_group = at % params.key_width;
          let update_column = at / params.key_width;
          var d0 = vec4<f32>(0.0);
          var d1 = vec4<f32>(0.0);
          var d2 = vec4<f32>(0.0);
          var d3 = vec4<f32>(0.0);
          // Four tokens at a time, loads first; then the rest.
          let key_step = params.key_split * params.key_width;
          let value_step = params.key_split * kColumns;
          var key_at = update_part * params.key_width + key_group;
          var value_at = (begin + update_part) * kColumns + update_column;
          var token = update_part;
          for (; token + 3u * params.key_split < count; token += 4u * params.key_split) {
            let k0 = piece[key_at];
            let k1 = piece[key_at + key_step];
            let k2 = piece[key_at + 2u * key_step];
            let k3 = piece[key_at + 3u * key_step];
            let v0 = values[value_at];
            let v1 = values[value_at + value_step];
            let v2 = values[value_at + 2u * value_step];
            let v3 = values[value_at + 3u * value_step];
            d0 += k0.x * v0;
            d1 += k0.y * v0;
            d2 += k0.z * v0;
            d3 += k0.w * v0;
            d0 += k1.x * v1;
            d1 += k1.y * v1;
            d2 += k1.z * v1;
            d3 += k1.w * v1;
            d0 += k2.x * v2;
            d1 += k2.y * v2;
            d2 += k2.z * v2;
            d3 += k2.w * v2;
            d0 += k3.x * v3;
            d1 += k3.y * v3;
            d2 += k3.z * v3;
            d3 += k3.w * v3;
            key_at += 4u * key_step;
            value_at += 4u * value_step;
          }
          for (; token < count; token += params.key_split) {
            let k = piece[key_at];
            let v = values[value_at];
            d0 += k.x * v;
            d1 += k.y * v;
            d2 += k.z * v;
            d3 += k.w * v;
            key_at += key_step;
            value_at += value_step;
          }
          let base = state_index(key_group * 4u, update_column);
          if (params.key_split == 1u) {
            state[base] = state[base] * scale + d0;
            state[base + kKeys / 4u] = state[base + kKeys / 4u] * scale + d1;
            state[base + kKeys / 2u] = state[base + kKeys / 2u] * scale + d2;
            state[base + 3u * kKeys / 4u] = state[base + 3u * kKeys / 4u] * scale + d3;
          } else {
            w0 = d0;
            w1 = d1;
            w2 = d2;
            w3 = d3;
          }
        }
        if (params.key_split > 1u) {
          let base = state_index((update_thread % params.key_width) * 4u, update_thread / params.key_width);
          for (var turn = 0u; turn < params.key_split; turn++) {
            if (turn == update_part && update_thread < update_tiles) {
              let turn_scale = select(1.0, scale, turn == 0u);
              state[base] = state[base] * turn_scale + w0;
              state[base + kKeys / 4u] = state[base + kKeys / 4u] * turn_scale + w1;
              state[base + kKeys / 2u] = state[base + kKeys / 2u] * turn_scale + w2;
              state[base + 3u * kKeys / 4u] = state[base + 3u * kKeys / 4u] * turn_scale + w3;
            }
            workgroupBarrier();
          }
        }
      }
    }
  }
  workgroupBarrier();  //@if STATE=yes
  for (var at = thread; at < params.key_width * 4u * kColumns; at += kThreads) {  //@if STATE=yes
    let key = at / kColumns;  //@if STATE=yes
    let state_column = column_begin + at % kColumns;  //@if STATE=yes
    if (state_column < params.value_width) {  //@if STATE=yes
      state_out[(task.head * params.key_width * 4u + key) * params.value_width + state_column] = state[state_index(key, at % kColumns)];  //@if STATE=yes
    }  //@if STATE=yes
  }  //@if STATE=yes
}
