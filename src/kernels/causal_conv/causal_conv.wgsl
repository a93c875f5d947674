// Depthwise causal convolution of width 4 over time, then SiLU. A thread owns $WIDTH channels of tile_rows consecutive rows and slides a
// window of three earlier inputs over them; where a sequence starts, the window becomes the shared history.
// Offsets, strides and channels are in units of $WIDTH elements.
struct Params {
  rows: u32,
  channels: u32,
  sequences: u32,
  tiles: u32,        // of tile_rows rows, at least 1
  x_offset: u32,
  x_stride: u32,
  out_offset: u32,
  out_stride: u32,
  tile_rows: u32,
  unused0: u32,
  unused1: u32,
  unused2: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<$TYPE>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<f32>>;  // one channel each: oldest tap first
@group(0) @binding(3) var<storage, read> history_in: array<$TYPE>;  // [3, channels], oldest first
@group(0) @binding(4) var<storage, read> spans: array<vec2<u32>>;   // start, length
@group(0) @binding(5) var<storage, read_write> output: array<$TYPE>;
@group(0) @binding(6) var<storage, read_write> history_out: array<$TYPE>;  //@if HISTORY=yes

//@include common/logistic.wgsl

fn activate(value: $TYPE) -> $TYPE {
  return value * logistic4(value);  //@if WIDTH=4
  return value * logistic(value);  //@if WIDTH=1
}

// Input `back` rows before `row`, in a sequence that starts at `start`.
fn earlier(row: u32, back: u32, start: u32, channel: u32) -> $TYPE {
  if (row >= start + back) { return x[params.x_offset + (row - back) * params.x_stride + channel]; }
  return history_in[(row + 3u - back - start) * params.channels + channel];
}

// The last sequence that starts at or before `row`.
fn sequence_of(row: u32) -> u32 {
  var low = 0u;
  var high = params.sequences;
  while (high - low > 1u) {
    let middle = (low + high) / 2u;
    if (spans[middle].x <= row) { low = middle; } else { high = middle; }
  }
  return low;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let channel_groups = (params.channels + 63u) / 64u;
  let index = group.x + group.y * groups.x;
  let tile = index / channel_groups;
  let channel = (index % channel_groups) * 64u + thread;
  if (tile >= params.tiles || channel >= params.channels) { return; }

  // taps[j] for this thread's channels
  let w0 = weight[channel * u32($WIDTH)];
  let w1 = weight[channel * 4u + 1u];  //@if WIDTH=4
  let w2 = weight[channel * 4u + 2u];  //@if WIDTH=4
  let w3 = weight[channel * 4u + 3u];  //@if WIDTH=4
  let taps = transpose(mat4x4<f32>(w0, w1, w2, w3));  //@if WIDTH=4
  let taps = w0;  //@if WIDTH=1

  let begin = tile * params.tile_rows;
  let end = min(begin + params.tile_rows, params.rows);
  var sequence = sequence_of(begin);
  var start = spans[sequence].x;
  var next = start + spans[sequence].y;
  var u3 = earlier(begin, 3u, start, channel);
  var u2 = earlier(begin, 2u, start, channel);
  var u1 = earlier(begin, 1u, start, channel);
  for (var row = begin; row < end; row++) {
    if (row >= next) {
      while (row >= next) {
        sequence++;
        start = spans[sequence].x;
        next = start + spans[sequence].y;
      }
      u3 = history_in[channel];
      u2 = history_in[params.channels + channel];
      u1 = history_in[2u * params.channels + channel];
    }
    let u0 = x[params.x_offset + row * params.x_stride + channel];
    output[params.out_offset + row * params.out_stride + channel] = activate(taps[0] * u3 + taps[1] * u2 + taps[2] * u1 + taps[3] * u0);
    u3 = u2;
    u2 = u1;
    u1 = u0;
  }
  if (tile + 1u == params.tiles) {  //@if HISTORY=yes
    for (var j = 0u; j < 3u; j++) {  //@if HISTORY=yes
      history_out[j * params.channels + channel] = earlier(params.rows, 3u - j, 0u, channel);  //@if HISTORY=yes
    }  //@if HISTORY=yes
  }  //@if HISTORY=yes
}
