// Sorts the routes of a slice by their slot in one buffer of the bank, and cuts each slot's routes into tiles. One workgroup.
// The table: [0] number of tiles; from 4, four numbers a tile (slot in the buffer, first route in the sorted list, routes, 0); at counts_at one
// number a slot; at routes_at the list. The order within a slot is not fixed, and changes no result.
//@include expert_ffn/params.wgsl
@group(0) @binding(1) var<storage, read> slots: array<u32>;
@group(0) @binding(2) var<storage, read_write> table: array<atomic<u32>>;

const threads: u32 = 256;

var<workgroup> sums: array<vec2<u32>, threads>;

fn slot_of(route: u32) -> u32 {
  return slots[params.route_first + route] - params.slot_first;
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) thread: u32) {
  for (var slot = thread; slot < params.slot_count; slot += threads) {
    atomicStore(&table[params.counts_at + slot], 0u);
  }
  storageBarrier();
  for (var route = thread; route < params.routes; route += threads) {
    let slot = slot_of(route);
    if (slot < params.slot_count) {
      atomicAdd(&table[params.counts_at + slot], 1u);
    }
  }
  storageBarrier();

  // Routes and tiles of each invocation's run of slots, then of the runs before it.
  let run = (params.slot_count + threads - 1u) / threads;
  let begin = min(thread * run, params.slot_count);
  let end = min(begin + run, params.slot_count);
  var own = vec2<u32>();
  for (var slot = begin; slot < end; slot++) {
    let count = atomicLoad(&table[params.counts_at + slot]);
    own += vec2<u32>(count, (count + params.tile_routes - 1u) / params.tile_routes);
  }
  sums[thread] = own;
  workgroupBarrier();
  for (var step = 1u; step < threads; step *= 2u) {
    var before = vec2<u32>();
    if (thread >= step) {
      before = sums[thread - step];
    }
    workgroupBarrier();
    sums[thread] += before;
    workgroupBarrier();
  }
  var next = sums[thread] - own;
  for (var slot = begin; slot < end; slot++) {
    let count = atomicLoad(&table[params.counts_at + slot]);
    for (var done = 0u; done < count; done += params.tile_routes) {
      let entry = 4u + 4u * next.y;
      atomicStore(&table[entry], slot);
      atomicStore(&table[entry + 1u], next.x + done);
      atomicStore(&table[entry + 2u], min(count - done, params.tile_routes));
      next.y++;
    }
    atomicStore(&table[params.counts_at + slot], next.x);
    next.x += count;
  }
  if (thread == threads - 1u) {
    atomicStore(&table[0], next.y);
  }
  storageBarrier();
  for (var route = thread; route < params.routes; route += threads) {
    let slot = slot_of(route);
    if (slot < params.slot_count) {
      atomicStore(&table[params.routes_at + atomicAdd(&table[params.counts_at + slot], 1u)], route);
    }
  }
}
