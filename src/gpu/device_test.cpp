// The device on a real adapter: round trips, ordering, errors as values, loss and memory. A missing adapter fails every test.
#include "gpu/device.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <numeric>
#include <string>

namespace chorus::gpu {
namespace {

constexpr std::string_view kAddText = R"(
struct Params { count: u32, value: u32, p0: u32, p1: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let index = (group.x + group.y * grid.x) * 64u + lane;
  if (index >= params.count) { return; }
  data[index] = data[index] * 3u + params.value;
}
)";

constexpr std::string_view kMoveText = R"(
struct Params { count: u32, value: u32, p0: u32, p1: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read_write> result: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= params.count) { return; }
  result[id.x] = source[id.x] + params.value;
}
)";

constexpr std::string_view kBrokenText = R"(
@group(0) @binding(1) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(1)
fn main() {
  data[0] = nonsense;
}
)";

// Asks for a binding that the dispatch does not give.
constexpr std::string_view kMismatchedText = R"(
@group(0) @binding(7) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(1)
fn main() { data[0] = 1u; }
)";

// Keeps a software adapter busy for a while: a chain of dependent operations in each invocation.
constexpr std::string_view kSlowText = R"(
struct Params { count: u32, rounds: u32, p0: u32, p1: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= params.count) { return; }
  var value = data[id.x] + id.x;
  for (var round = 0u; round < params.rounds; round++) { value = value * 1664525u + 1013904223u; }
  data[id.x] = value;
}
)";

constexpr ShaderSource kSlow{"slow", "u32", kSlowText};
constexpr ShaderSource kAdd{"add", "u32", kAddText};
constexpr ShaderSource kMove{"move", "u32", kMoveText};
constexpr ShaderSource kBroken{"broken_kernel", "first", kBrokenText};
constexpr ShaderSource kMismatched{"mismatched_kernel", "first", kMismatchedText};

struct Params {
  uint32_t count = 0, value = 0, padding[2] = {};
};

DeviceOptions software_options() {
  DeviceOptions options;
  options.allow_software = true;
  return options;
}

std::unique_ptr<Device> make_device(const DeviceOptions& options = software_options()) {
  Result<std::unique_ptr<Device>> device = Device::create(options);
  EXPECT_TRUE(device.ok()) << (device.ok() ? "" : device.error().to_line());
  return device.ok() ? std::move(*device) : nullptr;
}

class GpuDevice : public testing::Test {
 protected:
  void SetUp() override {
    device_ = make_device();
    ASSERT_NE(device_, nullptr);
  }
  std::unique_ptr<Device> device_;
};

std::shared_ptr<Storage> make_storage(Device& device, uint64_t bytes) {
  Result<std::shared_ptr<Storage>> storage = device.create_storage(bytes, "test");
  EXPECT_TRUE(storage.ok()) << (storage.ok() ? "" : storage.error().to_line());
  return storage.ok() ? *storage : nullptr;
}

std::vector<uint32_t> counted(size_t count, uint32_t start) {
  std::vector<uint32_t> values(count);
  std::iota(values.begin(), values.end(), start);
  return values;
}

void write_all(Device& device, const std::shared_ptr<Storage>& storage, std::span<const uint32_t> values) {
  const Status status = device.write(storage, 0, std::as_bytes(values));
  ASSERT_TRUE(status.ok()) << status.error().to_line();
}

std::vector<uint32_t> read_all(Device& device, const std::shared_ptr<Storage>& storage, size_t count) {
  std::vector<uint32_t> values(count, 0xdeadbeefu);
  const Status status = device.read(storage, 0, std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().to_line());
  return values;
}

Status add(Device& device, const std::shared_ptr<Storage>& storage, uint32_t count, uint32_t value) {
  const Params params{count, value, {}};
  Dispatch dispatch;
  dispatch.shader = &kAdd;
  dispatch.bindings = {{storage, Access::read_write}};
  dispatch.params = std::as_bytes(std::span(&params, 1));
  dispatch.grid = fold_grid((count + 63) / 64, device.capabilities().workgroups_per_dimension_max);
  return device.dispatch(dispatch);
}

Status run_slow(Device& device, const std::shared_ptr<Storage>& storage, uint32_t count, uint32_t rounds) {
  const Params params{count, rounds, {}};
  Dispatch dispatch;
  dispatch.shader = &kSlow;
  dispatch.bindings = {{storage, Access::read_write}};
  dispatch.params = std::as_bytes(std::span(&params, 1));
  dispatch.grid = {(count + 63) / 64, 1, 1};
  return device.dispatch(dispatch);
}

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

Status move(Device& device, const std::shared_ptr<Storage>& source, const std::shared_ptr<Storage>& target, uint32_t count,
            uint32_t value) {
  const Params params{count, value, {}};
  Dispatch dispatch;
  dispatch.shader = &kMove;
  dispatch.bindings = {{source, Access::read}, {target, Access::read_write}};
  dispatch.params = std::as_bytes(std::span(&params, 1));
  dispatch.grid = {(count + 63) / 64, 1, 1};
  return device.dispatch(dispatch);
}

void expect_usable(Device& device) {
  auto storage = make_storage(device, 64);
  ASSERT_NE(storage, nullptr);
  write_all(device, storage, counted(16, 5));
  const Status status = add(device, storage, 16, 1);
  ASSERT_TRUE(status.ok()) << status.error().to_line();
  EXPECT_EQ(read_all(device, storage, 16)[3], 8u * 3 + 1);
}

TEST_F(GpuDevice, NewStorageIsZero) {
  auto storage = make_storage(*device_, 4096 * 4);
  for (const uint32_t value : read_all(*device_, storage, 4096)) ASSERT_EQ(value, 0u);
}

TEST_F(GpuDevice, ReusedMemoryIsZeroAgain) {
  for (int round = 0; round < 4; ++round) {
    auto storage = make_storage(*device_, 1 << 20);
    for (const uint32_t value : read_all(*device_, storage, 1 << 18)) ASSERT_EQ(value, 0u) << "round " << round;
    write_all(*device_, storage, std::vector<uint32_t>(1 << 18, 0xffffffffu));
  }
}

TEST_F(GpuDevice, RoundTripsOfManySizes) {
  for (const size_t count : {1u, 2u, 3u, 5u, 63u, 64u, 1021u, 65537u, (24u << 20) / 4 + 3}) {
    auto storage = make_storage(*device_, count * 4);
    const std::vector<uint32_t> values = counted(count, static_cast<uint32_t>(count));
    write_all(*device_, storage, values);
    EXPECT_EQ(read_all(*device_, storage, count), values) << count;
  }
}

TEST_F(GpuDevice, PartsOfAStorage) {
  auto storage = make_storage(*device_, 40);
  write_all(*device_, storage, counted(10, 100));
  const std::vector<uint32_t> three = {1, 2, 3};
  ASSERT_TRUE(device_->write(storage, 12, std::as_bytes(std::span(three))).ok());
  EXPECT_EQ(read_all(*device_, storage, 10), (std::vector<uint32_t>{100, 101, 102, 1, 2, 3, 106, 107, 108, 109}));
  std::vector<uint32_t> two(2);
  ASSERT_TRUE(device_->read(storage, 16, std::as_writable_bytes(std::span(two))).ok());
  EXPECT_EQ(two, (std::vector<uint32_t>{2, 3}));
}

TEST_F(GpuDevice, RangesAreChecked) {
  auto storage = make_storage(*device_, 64);
  std::vector<std::byte> bytes(68);
  EXPECT_EQ(device_->write(storage, 0, bytes).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(device_->write(storage, 64, std::span(bytes).first(4)).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(device_->write(storage, 2, std::span(bytes).first(4)).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(device_->write(storage, 0, std::span(bytes).first(3)).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(device_->write(storage, UINT64_MAX - 3, std::span(bytes).first(8)).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(device_->read(storage, 32, std::span(bytes).first(36)).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(device_->read(nullptr, 0, std::span(bytes).first(4)).error().code, ErrorCode::invalid_argument);
  expect_usable(*device_);
}

TEST_F(GpuDevice, StorageOfAnotherDeviceIsRefused) {
  auto other = make_device();
  ASSERT_NE(other, nullptr);
  auto foreign = make_storage(*other, 64);
  const Status status = add(*device_, foreign, 4, 1);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("another device"), std::string::npos);
}

TEST_F(GpuDevice, DispatchesSeeEachOther) {
  auto a = make_storage(*device_, 400), b = make_storage(*device_, 400), c = make_storage(*device_, 400);
  write_all(*device_, a, counted(100, 0));
  ASSERT_TRUE(move(*device_, a, b, 100, 10).ok());  // read after write
  ASSERT_TRUE(move(*device_, b, c, 100, 100).ok());
  ASSERT_TRUE(add(*device_, b, 100, 7).ok());       // write after read
  ASSERT_TRUE(move(*device_, a, b, 50, 1).ok());    // write after write
  ASSERT_TRUE(device_->copy(c, 0, a, 0, 40).ok());  // a copy between dispatches
  ASSERT_TRUE(move(*device_, a, c, 10, 1000).ok());
  ASSERT_TRUE(device_->submit().ok());
  const std::vector<uint32_t> a_values = read_all(*device_, a, 100), b_values = read_all(*device_, b, 100),
                              c_values = read_all(*device_, c, 100);
  for (uint32_t index = 0; index < 100; ++index) {
    EXPECT_EQ(a_values[index], index < 10 ? index + 110 : index);
    EXPECT_EQ(b_values[index], index < 50 ? index + 1 : (index + 10) * 3 + 7);
    EXPECT_EQ(c_values[index], index < 10 ? index + 1110 : index + 110);
  }
}

TEST_F(GpuDevice, ManyDispatchesInOneSubmit) {
  auto storage = make_storage(*device_, 4);
  uint32_t expected = 0;
  for (uint32_t step = 0; step < 2500; ++step) {  // more than one block of parameters
    ASSERT_TRUE(add(*device_, storage, 1, step).ok());
    expected = expected * 3 + step;
  }
  EXPECT_EQ(read_all(*device_, storage, 1)[0], expected);
  ASSERT_TRUE(add(*device_, storage, 1, 1).ok());  // the blocks are used again
  EXPECT_EQ(read_all(*device_, storage, 1)[0], expected * 3 + 1);
}

TEST_F(GpuDevice, AWriteComesBeforeWhatIsOnlyRecorded) {
  auto storage = make_storage(*device_, 4);
  ASSERT_TRUE(add(*device_, storage, 1, 1).ok());
  write_all(*device_, storage, counted(1, 10));
  EXPECT_EQ(read_all(*device_, storage, 1)[0], 31u);
}

TEST_F(GpuDevice, DiscardForgetsTheRecording) {
  auto storage = make_storage(*device_, 4);
  ASSERT_TRUE(add(*device_, storage, 1, 5).ok());
  device_->discard();
  ASSERT_TRUE(device_->submit().ok());
  EXPECT_EQ(read_all(*device_, storage, 1)[0], 0u);
  expect_usable(*device_);
}

TEST_F(GpuDevice, RecordedWorkKeepsItsStorages) {
  auto result = make_storage(*device_, 400);
  {
    auto source = make_storage(*device_, 400);
    write_all(*device_, source, counted(100, 1));
    ASSERT_TRUE(move(*device_, source, result, 100, 1).ok());
  }
  EXPECT_EQ(read_all(*device_, result, 100), counted(100, 2));
}

TEST_F(GpuDevice, FreedStoragesLeaveNoStaleBindings) {
  auto result = make_storage(*device_, 400);
  for (uint32_t round = 0; round < 200; ++round) {
    auto source = make_storage(*device_, 400);
    write_all(*device_, source, counted(100, round));
    ASSERT_TRUE(move(*device_, source, result, 100, 0).ok());
    ASSERT_EQ(read_all(*device_, result, 100), counted(100, round));
  }
}

TEST_F(GpuDevice, GridsPastOneDimension) {
  const uint32_t limit = device_->capabilities().workgroups_per_dimension_max;
  const uint32_t count = (limit + 1) * 64 - 17;
  auto storage = make_storage(*device_, uint64_t{count} * 4);
  ASSERT_TRUE(add(*device_, storage, count, 9).ok());
  const std::vector<uint32_t> values = read_all(*device_, storage, count);
  size_t wrong = 0;
  for (const uint32_t value : values) wrong += value == 9 ? 0 : 1;
  EXPECT_EQ(wrong, 0u);
}

TEST_F(GpuDevice, EmptyGridDoesNothing) {
  auto storage = make_storage(*device_, 4);
  ASSERT_TRUE(add(*device_, storage, 0, 5).ok());
  EXPECT_EQ(read_all(*device_, storage, 1)[0], 0u);
}

TEST_F(GpuDevice, BrokenShaderNamesKernelAndLine) {
  auto storage = make_storage(*device_, 16);
  Dispatch dispatch;
  dispatch.shader = &kBroken;
  dispatch.bindings = {{storage, Access::read_write}};
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Status status = device_->dispatch(dispatch);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("broken_kernel/first"), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find("line 5"), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find("nonsense"), std::string::npos) << status.error().message;
    EXPECT_EQ(status.error().message.find('\n'), std::string::npos);
  }
  expect_usable(*device_);
}

TEST_F(GpuDevice, ShaderWithOtherBindingsNamesTheKernel) {
  auto storage = make_storage(*device_, 16);
  Dispatch dispatch;
  dispatch.shader = &kMismatched;
  dispatch.bindings = {{storage, Access::read_write}};
  const Status status = device_->dispatch(dispatch);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("mismatched_kernel/first"), std::string::npos) << status.error().message;
  expect_usable(*device_);
}

TEST_F(GpuDevice, OneKernelWithTwoBindingListsIsRefused) {
  auto storage = make_storage(*device_, 16), other = make_storage(*device_, 16);
  ASSERT_TRUE(add(*device_, storage, 4, 1).ok());
  Dispatch dispatch;
  dispatch.shader = &kAdd;
  dispatch.bindings = {{storage, Access::read_write}, {other, Access::read}};
  EXPECT_EQ(device_->dispatch(dispatch).error().code, ErrorCode::internal);
  expect_usable(*device_);
}

// Dawn would refuse the command buffer, but only with the safe toggles.
TEST_F(GpuDevice, OneStorageReadAndWrittenInOneDispatchIsRefused) {
  auto storage = make_storage(*device_, 1024);
  const Status status = move(*device_, storage, storage, 100, 1);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::internal);
  EXPECT_NE(status.error().message.find("storage bindings 1 and 0"), std::string::npos) << status.error().message;
  const Params params{1, 1, {}};
  Dispatch dispatch;
  dispatch.shader = &kMove;
  dispatch.bindings = {{storage, Access::read, 0, 256}, {storage, Access::read_write, 512, 256}};  // apart, but read and written
  dispatch.params = std::as_bytes(std::span(&params, 1));
  EXPECT_FALSE(device_->dispatch(dispatch).ok());
  expect_usable(*device_);
}

TEST_F(GpuDevice, DispatchArgumentsAreChecked) {
  auto storage = make_storage(*device_, 1024);
  Dispatch dispatch;
  EXPECT_FALSE(device_->dispatch(dispatch).ok());  // no shader
  dispatch.shader = &kAdd;
  dispatch.bindings = {{storage, Access::read_write, 4}};  // misaligned
  EXPECT_FALSE(device_->dispatch(dispatch).ok());
  dispatch.bindings = {{storage, Access::read_write, 1024}};  // past the end
  EXPECT_FALSE(device_->dispatch(dispatch).ok());
  dispatch.bindings = {{storage, Access::read_write, 256, 1024}};
  EXPECT_FALSE(device_->dispatch(dispatch).ok());
  dispatch.bindings = {{nullptr, Access::read_write}};
  EXPECT_FALSE(device_->dispatch(dispatch).ok());
  dispatch.bindings = {{storage, Access::read_write}};
  const std::vector<std::byte> odd(20), large(272);
  dispatch.params = odd;
  EXPECT_FALSE(device_->dispatch(dispatch).ok());
  dispatch.params = large;
  EXPECT_FALSE(device_->dispatch(dispatch).ok());
  dispatch.params = {};
  dispatch.grid = {device_->capabilities().workgroups_per_dimension_max + 1, 1, 1};
  EXPECT_EQ(device_->dispatch(dispatch).error().code, ErrorCode::limit_exceeded);
  expect_usable(*device_);
}

TEST_F(GpuDevice, AbsurdBufferIsAnErrorAndTheDeviceLives) {
  const uint64_t in_use = device_->bytes_in_use();
  const Result<std::shared_ptr<Storage>> absurd = device_->create_storage(1ull << 60, "absurd");
  ASSERT_FALSE(absurd.ok());
  EXPECT_EQ(absurd.error().code, ErrorCode::limit_exceeded);
  EXPECT_NE(absurd.error().message.find("absurd"), std::string::npos);
  EXPECT_EQ(device_->bytes_in_use(), in_use);
  expect_usable(*device_);
}

TEST_F(GpuDevice, MemoryCapIsOutOfMemory) {
  DeviceOptions options = software_options();
  options.memory_bytes_cap = 1 << 20;
  auto device = make_device(options);
  ASSERT_NE(device, nullptr);
  auto half = make_storage(*device, 1 << 19);
  const Result<std::shared_ptr<Storage>> refused = device->create_storage(600000, "too much");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
  half.reset();
  EXPECT_TRUE(device->create_storage(600000, "fits now").ok());
}

TEST(GpuDevices, OutOfMemoryOfTheDriverIsAnErrorAndTheDeviceLives) {
  for (const ToggleSet toggles : {ToggleSet::safe, ToggleSet::fast}) {
    DeviceOptions options = software_options();
    options.toggles = toggles;
    options.fake_out_of_memory_bytes = 1 << 20;
    auto device = make_device(options);
    ASSERT_NE(device, nullptr);
    const uint64_t in_use = device->bytes_in_use();
    const Result<std::shared_ptr<Storage>> refused = device->create_storage(1 << 20, "weights of layer 3");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory) << refused.error().message;
    EXPECT_NE(refused.error().message.find("weights of layer 3"), std::string::npos) << refused.error().message;
    EXPECT_EQ(device->bytes_in_use(), in_use);
    expect_usable(*device);
  }
}

TEST_F(GpuDevice, ForcedLossIsAnErrorAndANewDeviceWorks) {
  auto storage = make_storage(*device_, 64);
  ASSERT_TRUE(add(*device_, storage, 4, 1).ok());
  device_->force_loss();
  std::vector<std::byte> bytes(4);
  EXPECT_EQ(device_->read(storage, 0, bytes).error().code, ErrorCode::device_lost);
  EXPECT_EQ(device_->submit().error().code, ErrorCode::device_lost);
  EXPECT_EQ(device_->write(storage, 0, bytes).error().code, ErrorCode::device_lost);
  EXPECT_EQ(add(*device_, storage, 4, 1).error().code, ErrorCode::device_lost);
  EXPECT_EQ(device_->create_storage(64, "after loss").error().code, ErrorCode::device_lost);
  EXPECT_EQ(device_->wait_idle().error().code, ErrorCode::device_lost);
  const std::string line = device_->submit().error().to_line();
  EXPECT_NE(line.find("loss forced by a test"), std::string::npos) << line;
  storage.reset();
  device_ = make_device();
  ASSERT_NE(device_, nullptr);
  expect_usable(*device_);
}

TEST_F(GpuDevice, LossWithWorkInFlight) {
  auto storage = make_storage(*device_, 1 << 20);
  for (uint32_t step = 0; step < 50; ++step) ASSERT_TRUE(add(*device_, storage, 1 << 18, step).ok());
  ASSERT_TRUE(device_->submit().ok());
  device_->force_loss();
  EXPECT_EQ(device_->wait_idle().error().code, ErrorCode::device_lost);
}

TEST_F(GpuDevice, WaitingDoesNotBurnACore) {
  auto storage = make_storage(*device_, 1 << 18);
  ASSERT_TRUE(run_slow(*device_, storage, 1 << 16, 1).ok());
  ASSERT_TRUE(device_->wait_idle().ok());
  // Longer chains until the wait is long enough to measure.
  for (uint32_t rounds = 2000; rounds <= 2'000'000; rounds *= 4) {
    ASSERT_TRUE(run_slow(*device_, storage, 1 << 16, rounds).ok());
    ASSERT_TRUE(device_->submit().ok());
    const auto start = std::chrono::steady_clock::now();
    const double busy_before = thread_seconds();
    std::vector<std::byte> bytes(64);
    ASSERT_TRUE(device_->read(storage, 0, bytes).ok());
    const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double busy = thread_seconds() - busy_before;
    if (waited < 0.2) continue;
    EXPECT_LT(busy, 0.25 * waited) << "of " << waited << " s waited";
    return;
  }
  ADD_FAILURE() << "the device was never busy long enough";
}

TEST(GpuDevices, ADeviceThatDoesNotAnswerCountsAsLost) {
  DeviceOptions options = software_options();
  options.wait_timeout_seconds = 0;
  auto device = make_device(options);
  ASSERT_NE(device, nullptr);
  auto storage = make_storage(*device, 1 << 18);
  const Access access[] = {Access::read_write};
  ASSERT_TRUE(device->warm(kSlow, access).ok());
  ASSERT_TRUE(run_slow(*device, storage, 1 << 16, 3000).ok());
  std::vector<std::byte> bytes(64);
  const Status status = device->read(storage, 0, bytes);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::device_lost) << status.error().message;
  EXPECT_NE(status.error().message.find("no answer"), std::string::npos) << status.error().message;
  storage.reset();
  device = make_device();
  ASSERT_NE(device, nullptr);
  expect_usable(*device);
}

TEST_F(GpuDevice, LargeWritesNeedLittleStaging) {
  auto storage = make_storage(*device_, 96 << 20);
  const std::vector<uint32_t> values = counted((96 << 20) / 4, 3);
  write_all(*device_, storage, values);
  EXPECT_LE(device_->bytes_peak(), (96u << 20) + (33u << 20));
  std::vector<uint32_t> tail(1000);
  ASSERT_TRUE(device_->read(storage, (96 << 20) - 4000, std::as_writable_bytes(std::span(tail))).ok());
  EXPECT_EQ(tail, counted(1000, (96 << 20) / 4 - 1000 + 3));
}

TEST_F(GpuDevice, LargeWritesKeepTheirOrder) {
  auto storage = make_storage(*device_, 20 << 20), copy = make_storage(*device_, 20 << 20);
  const size_t count = (20 << 20) / 4;
  write_all(*device_, storage, counted(count, 1));
  ASSERT_TRUE(device_->copy(storage, 0, copy, 0, 20 << 20).ok());
  ASSERT_TRUE(device_->submit().ok());
  write_all(*device_, storage, counted(count, 2));
  EXPECT_EQ(read_all(*device_, copy, count), counted(count, 1));
  EXPECT_EQ(read_all(*device_, storage, count), counted(count, 2));
}

TEST_F(GpuDevice, BytesAreCounted) {
  const uint64_t before = device_->bytes_in_use();
  auto storage = make_storage(*device_, 1000);
  EXPECT_EQ(device_->bytes_in_use() - before, 1008u);  // whole vec4s
  EXPECT_EQ(storage->bytes(), 1000u);
  const uint64_t peak = device_->bytes_peak();
  EXPECT_GE(peak, before + 1008);
  storage.reset();
  EXPECT_EQ(device_->bytes_in_use(), before);
  EXPECT_EQ(device_->bytes_peak(), peak);
}

TEST_F(GpuDevice, ThousandStoragesComeAndGo) {
  const uint64_t before = device_->bytes_in_use();
  for (uint32_t round = 0; round < 1000; ++round) {
    auto storage = make_storage(*device_, 4 + round * 16);
    ASSERT_NE(storage, nullptr);
  }
  EXPECT_EQ(device_->bytes_in_use(), before);
}

TEST(GpuDevices, ComeAndGo) {
  for (int round = 0; round < 12; ++round) {
    auto device = make_device();
    ASSERT_NE(device, nullptr);
    if (round % 4 == 0) expect_usable(*device);
  }
}

TEST(GpuDevices, AStorageMayOutliveItsDevice) {
  auto device = make_device();
  ASSERT_NE(device, nullptr);
  auto storage = make_storage(*device, 64);
  device.reset();
  storage.reset();
}

TEST(GpuDevices, CapsHoldWhatTheyHide) {
  DeviceOptions options = software_options();
  options.hide_f16 = options.hide_subgroups = true;
  options.storage_binding_bytes_cap = 4096;
  options.workgroups_per_dimension_cap = 5;
  auto device = make_device(options);
  ASSERT_NE(device, nullptr);
  EXPECT_FALSE(device->capabilities().f16);
  EXPECT_FALSE(device->capabilities().subgroups);
  EXPECT_EQ(device->capabilities().storage_binding_bytes_max, 4096u);
  EXPECT_EQ(device->capabilities().workgroups_per_dimension_max, 5u);
  auto large = make_storage(*device, 8192), small = make_storage(*device, 4096);
  EXPECT_EQ(add(*device, large, 4, 1).error().code, ErrorCode::limit_exceeded);
  EXPECT_TRUE(add(*device, small, 64 * 25, 1).ok());  // folds to 5 x 5
  EXPECT_EQ(add(*device, small, 64 * 25 + 1, 1).error().code, ErrorCode::limit_exceeded);
}

TEST(GpuDevices, FastTogglesGiveTheSameResults) {
  DeviceOptions options = software_options();
  options.toggles = ToggleSet::fast;
  auto device = make_device(options);
  ASSERT_NE(device, nullptr);
  auto storage = make_storage(*device, 1 << 16);
  for (const uint32_t value : read_all(*device, storage, 1 << 14)) ASSERT_EQ(value, 0u);  // zero-filled all the same
  expect_usable(*device);
  const Result<std::shared_ptr<Storage>> absurd = device->create_storage(1ull << 60, "absurd");
  EXPECT_FALSE(absurd.ok());
  Dispatch dispatch;
  dispatch.shader = &kBroken;
  dispatch.bindings = {{storage, Access::read_write}};
  EXPECT_FALSE(device->dispatch(dispatch).ok());
  expect_usable(*device);
}

TEST(GpuDevices, TimesArePerKernel) {
  DeviceOptions options = software_options();
  options.timestamps = true;
  auto device = make_device(options);
  ASSERT_NE(device, nullptr);
  auto a = make_storage(*device, 1 << 20), b = make_storage(*device, 1 << 20);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(add(*device, a, 1 << 18, 1).ok());
    ASSERT_TRUE(move(*device, a, b, 1 << 18, 1).ok());
    ASSERT_TRUE(add(*device, b, 1 << 18, 1).ok());
    ASSERT_TRUE(device->submit().ok());
  }
  const Result<std::vector<DispatchTime>> times = device->take_times();
  ASSERT_TRUE(times.ok()) << times.error().to_line();
  ASSERT_EQ(times->size(), 2u);
  EXPECT_EQ((*times)[0].kernel, "add/u32");
  EXPECT_EQ((*times)[0].calls, 6u);
  EXPECT_EQ((*times)[1].kernel, "move/u32");
  EXPECT_EQ((*times)[1].calls, 3u);
  EXPECT_GT((*times)[0].milliseconds, 0);
  EXPECT_LT((*times)[0].milliseconds, 60000);
  EXPECT_TRUE(device->take_times()->empty());
  expect_usable(*device);
}

TEST(GpuDevices, NoTimesUnlessAsked) {
  auto device = make_device();
  ASSERT_NE(device, nullptr);
  expect_usable(*device);
  EXPECT_TRUE(device->take_times()->empty());
}

}  // namespace
}  // namespace chorus::gpu
