// A packed language model as a whole: opened, its experts read. Whatever is accepted has finite experts of the stated shape.
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "experts/element_runs.h"
#include "experts/packed_store.h"
#include "fuzz_tools.h"
#include "models/language_checkpoint.h"

namespace {

using namespace chorus;

constexpr uint32_t kExpertsRead = 4;  // of each layer

// A file in memory, for readers that want a path.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    fuzz::require(descriptor_ >= 0 && ::write(descriptor_, data, size) == static_cast<ssize_t>(size), "the system gives a file");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

void read_experts(const experts::ExpertStore& store, uint32_t layer) {
  std::vector<std::byte> record(store.record_bytes());
  for (uint32_t expert = 0; expert < std::min(kExpertsRead, store.experts(layer)); ++expert) {
    const auto status = experts::read_record(store, {layer, expert}, record);
    if (!status.ok()) {
      fuzz::require(status.error().message.find(experts::place_text({layer, expert})) != std::string::npos,
                    "an error names layer and expert");
      continue;
    }
    const compute::ExpertRecord layout(store.shape());
    const uint64_t bytes = 2ull * store.shape().inner * layout.hidden_padded * dtype_bytes(store.shape().dtype);
    fuzz::require(experts::all_finite(std::span<const std::byte>(record).first(bytes), store.shape().dtype),
                  "an accepted expert is finite");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile file(data, size);
  const auto checkpoint = models::open_language_checkpoint(file.path());
  if (!checkpoint) return 0;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const auto store = experts::open_packed_store(*checkpoint, dtype, false);
    if (!store) continue;
    fuzz::require((*store)->layers() == checkpoint->blueprint.layers.size(), "layers are the model's");
    for (uint32_t layer = 0; layer < (*store)->layers(); ++layer) read_experts(**store, layer);
  }
  return 0;
}
