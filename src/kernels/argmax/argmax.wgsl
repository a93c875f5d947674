// The lowest place of a row's largest value. Values are compared as whole numbers of the same order, so that neither NaN nor zeros of two
// signs depend on the device's arithmetic. A workgroup takes `piece` values of one row; `best` holds (number, place) of every piece.
struct Params {
  rows: u32,
  cols: u32,       // of x
  x_offset: u32,
  x_stride: u32,
  piece: u32,
  pieces: u32,     // of a row
  first_row: u32,  // of the indices; rows count from here
  unused: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<u32>;              //@if SOURCE=x
@group(0) @binding(1) var<storage, read> best: array<vec2<u32>>;     //@if SOURCE=best
@group(0) @binding(2) var<storage, read_write> out: array<vec2<u32>>;  //@if TARGET=best
@group(0) @binding(2) var<storage, read_write> indices: array<u32>;  //@if TARGET=index

//@include common/order_key.wgsl

var<workgroup> bests: array<vec2<u32>, 256>;

fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let workgroup = group.x + group.y * groups.x;
  let row = workgroup / params.pieces;                     //@if SOURCE=x
  let first = workgroup % params.pieces * params.piece;    //@if SOURCE=x
  let last = min(first + params.piece, params.cols);       //@if SOURCE=x
  let row_at = params.x_offset + row * params.x_stride;    //@if SOURCE=x
  let row = workgroup;                                     //@if SOURCE=best
  let first = 0u;                                          //@if SOURCE=best
  let last = params.pieces;                                //@if SOURCE=best
  if (row >= params.rows) {
    return;
  }
  var found = vec2<u32>(0u, 0xffffffffu);
  for (var i = first + thread; i < last; i += 256u) {
    found = better(found, vec2<u32>(order_key(x[row_at + i]), i));   //@if SOURCE=x
    found = better(found, best[row * params.pieces + i]);            //@if SOURCE=best
  }
  bests[thread] = found;
  for (var half = 128u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (thread < half) {
      bests[thread] = better(bests[thread], bests[thread + half]);
    }
  }
  if (thread == 0u) {
    out[workgroup] = bests[0];  //@if TARGET=best
    indices[params.first_row + row] = select(bests[0].y, 0xffffffffu, bests[0].x == kNanKey);  //@if TARGET=index
  }
}
