// The pickle of a head file by itself: behind the archive's checksums few changed bytes would reach it.
#include "formats/pickle.h"
#include "fuzz_tools.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace chorus;
  auto pickle = formats::read_pickle(fuzz::as_bytes(data, size), "fuzz");
  if (!pickle) return 0;
  fuzz::require(pickle->root < pickle->nodes.size(), "the root is a value");
  for (const formats::PickleNode& node : pickle->nodes) {
    for (const uint32_t item : node.items) fuzz::require(item < pickle->nodes.size(), "every item is a value");
    if (node.kind == formats::PickleNode::Kind::dict) fuzz::require(node.items.size() % 2 == 0, "every key has a value");
    if (node.kind != formats::PickleNode::Kind::tensor) continue;
    fuzz::require(node.shape.size() == node.strides.size(), "a stride per extent");
    fuzz::require(pickle->nodes[node.items.at(0)].kind == formats::PickleNode::Kind::storage, "a tensor lies in a storage");
  }
  return 0;
}
