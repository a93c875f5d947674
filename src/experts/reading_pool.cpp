#include "experts/reading_pool.h"

#include <algorithm>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace chorus::experts {

namespace {

// Reading allocates; no exception may leave a thread.
template <typename Work>
Status no_throw(ExpertKey key, const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::out_of_memory,
                      "expert " + std::to_string(key.expert) + " of layer " + std::to_string(key.layer) + ": no memory to read it with");
  }
}

}  // namespace

Result<std::unique_ptr<ReadingPool>> ReadingPool::create(const ExpertStore& store, uint32_t threads) {
  std::unique_ptr<ReadingPool> pool(new ReadingPool(store));
  try {
    for (uint32_t i = 0; i < std::max(threads, 1u); ++i) pool->threads_.emplace_back([raw = pool.get()] { raw->work(); });
  } catch (const std::system_error& error) {
    return make_error(ErrorCode::out_of_memory, std::string("cannot start a thread for reading experts: ") + error.what());
  }
  return pool;
}

ReadingPool::~ReadingPool() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  something_to_do_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void ReadingPool::start(ExpertKey key, std::span<std::byte> record, Urgency urgency, Done done) {
  auto read = std::make_shared<Read>();
  read->key = key;
  read->record = record;
  read->done = std::move(done);
  read->parts_open = store_.parts();
  {
    const std::scoped_lock lock(mutex_);
    queues_[static_cast<size_t>(urgency)].push_back(std::move(read));
  }
  something_to_do_.notify_all();
}

void ReadingPool::hurry(ExpertKey key) {
  const std::scoped_lock lock(mutex_);
  for (size_t i = 1; i < queues_.size(); ++i) {
    const auto found = std::find_if(queues_[i].begin(), queues_[i].end(), [&](const auto& read) { return read->key == key; });
    if (found == queues_[i].end()) continue;
    queues_[0].push_back(std::move(*found));
    queues_[i].erase(found);
    return;
  }
}

bool ReadingPool::cancel(ExpertKey key) {
  const std::scoped_lock lock(mutex_);
  for (Queue& queue : queues_) {
    const auto found = std::find_if(queue.begin(), queue.end(), [&](const auto& read) { return read->key == key; });
    if (found == queue.end()) continue;
    if ((*found)->next_part != 0) return false;
    queue.erase(found);
    return true;
  }
  return false;
}

// Null when the pool ends.
std::optional<uint32_t> ReadingPool::take_part(std::shared_ptr<Read>& read) {
  std::unique_lock lock(mutex_);
  const auto most_urgent = [&] { return std::find_if(queues_.begin(), queues_.end(), [](const Queue& queue) { return !queue.empty(); }); };
  something_to_do_.wait(lock, [&] { return stop_ || most_urgent() != queues_.end(); });
  if (stop_) return std::nullopt;
  const auto queue = most_urgent();
  read = queue->front();
  const uint32_t part = read->next_part++;
  if (read->next_part == store_.parts()) queue->pop_front();
  return part;
}

// True when it was the last part. After an error the parts that no thread has taken are left out.
bool ReadingPool::end_part(Read& read, Status status) {
  const std::scoped_lock lock(mutex_);
  --read.parts_open;
  if (!status.ok() && read.status.ok()) {
    read.status = std::move(status);
    read.parts_open -= store_.parts() - read.next_part;
    read.next_part = store_.parts();
    for (Queue& queue : queues_) std::erase_if(queue, [&](const auto& other) { return other.get() == &read; });
  }
  return read.parts_open == 0;
}

void ReadingPool::work() {
  std::shared_ptr<Read> read;
  while (const auto part = take_part(read)) {
    const ExpertKey key = read->key;
    if (end_part(*read, no_throw(key, [&] { return read_part_with_retries(store_, key, *part, read->record); }))) {
      Status status = std::move(read->status);
      if (status.ok()) status = no_throw(key, [&] { return store_.finish(key, read->record); });
      read->done(std::move(status));
    }
    read.reset();
  }
}

}  // namespace chorus::experts
