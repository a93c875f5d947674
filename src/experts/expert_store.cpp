#include "experts/expert_store.h"

#include <chrono>
#include <thread>

namespace chorus::experts {

std::string place_text(ExpertKey key) { return "layer " + std::to_string(key.layer) + ", expert " + std::to_string(key.expert); }

uint64_t ExpertStore::total_bytes() const {
  uint64_t count = 0;
  for (uint32_t layer = 0; layer < layers(); ++layer) count += experts(layer);
  return count * record_bytes();
}

Status read_part_with_retries(const ExpertStore& store, ExpertKey key, uint32_t part, std::span<std::byte> record) {
  for (uint32_t attempt = 1;; ++attempt) {
    auto status = store.read_part(key, part, record);
    if (status.ok() || status.error().code != ErrorCode::io_failed) return status;
    if (attempt == kReadAttempts) {
      return make_error(ErrorCode::io_failed, status.error().message + " (tried " + std::to_string(attempt) + " times)");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kReadPauseMilliseconds * attempt));
  }
}

Status read_record(const ExpertStore& store, ExpertKey key, std::span<std::byte> record) {
  for (uint32_t part = 0; part < store.parts(); ++part) CHORUS_TRY(read_part_with_retries(store, key, part, record));
  return store.finish(key, record);
}

}  // namespace chorus::experts
