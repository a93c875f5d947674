// The choice of an adapter, on made-up lists, and the report of what one lacks. The real list must not hold the Null backend.
#include "gpu/adapters.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "gpu/adapter_report.h"

namespace chorus::gpu {
namespace {

FoundAdapter make(const char* name, wgpu::AdapterType type, const char* backend = "vulkan") {
  FoundAdapter found;
  found.type = type;
  found.capabilities.name = name;
  found.capabilities.backend = backend;
  found.capabilities.software = type == wgpu::AdapterType::CPU;
  found.capabilities.timestamps = true;
  return found;
}

std::vector<FoundAdapter> typical_list() {
  return {make("llvmpipe", wgpu::AdapterType::CPU), make("Iris Xe", wgpu::AdapterType::IntegratedGPU),
          make("NVIDIA H200", wgpu::AdapterType::DiscreteGPU, "opengl"), make("NVIDIA H200", wgpu::AdapterType::DiscreteGPU)};
}

std::string chosen(const DeviceOptions& options) {
  Result<FoundAdapter> result = choose_adapter(typical_list(), options);
  return result ? result->capabilities.name + "/" + result->capabilities.backend : "error: " + result.error().message;
}

TEST(ChooseAdapter, PrefersADiscreteCardAndItsNativeApi) { EXPECT_EQ(chosen({}), "NVIDIA H200/vulkan"); }

TEST(ChooseAdapter, LowPowerPrefersAnIntegratedOne) {
  DeviceOptions options;
  options.power = PowerPreference::low;
  EXPECT_EQ(chosen(options), "Iris Xe/vulkan");
}

TEST(ChooseAdapter, NameMatchesAPartInAnyCase) {
  DeviceOptions options;
  options.adapter = "iris";
  EXPECT_EQ(chosen(options), "Iris Xe/vulkan");
}

TEST(ChooseAdapter, BackendMatches) {
  DeviceOptions options;
  options.backend = "OpenGL";
  EXPECT_EQ(chosen(options), "NVIDIA H200/opengl");
}

TEST(ChooseAdapter, SoftwareOnlyWhenAllowed) {
  DeviceOptions options;
  options.adapter = "llvm";
  const Result<FoundAdapter> refused = choose_adapter(typical_list(), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::not_found);
  EXPECT_NE(refused.error().message.find("a software adapter, which was not asked for"), std::string::npos) << refused.error().message;
  options.allow_software = true;
  EXPECT_EQ(chosen(options), "llvmpipe/vulkan");
}

TEST(ChooseAdapter, SoftwareAloneSaysHowToHaveIt) {
  const Result<FoundAdapter> refused = choose_adapter({make("llvmpipe", wgpu::AdapterType::CPU)}, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::not_found);
  EXPECT_NE(refused.error().message.find("llvmpipe, a software adapter"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("--device webgpu"), std::string::npos) << refused.error().message;
}

TEST(ChooseAdapter, HardwareComesBeforeAllowedSoftware) {
  DeviceOptions options;
  options.allow_software = true;
  EXPECT_EQ(chosen(options), "NVIDIA H200/vulkan");
}

TEST(ChooseAdapter, NoneFoundIsAnError) {
  const Result<FoundAdapter> none = choose_adapter({}, {});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::not_found);
}

TEST(ChooseAdapter, TheErrorNamesWhatWasFound) {
  DeviceOptions options;
  options.adapter = "voodoo";
  const std::string text = chosen(options);
  EXPECT_NE(text.find("NVIDIA H200"), std::string::npos) << text;
  EXPECT_NE(text.find("voodoo"), std::string::npos) << text;
}

// Points the Vulkan loader at nothing while it lives.
class WithoutVulkanDrivers {
 public:
  WithoutVulkanDrivers() {
    for (const char* name : {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}) {
      const char* value = std::getenv(name);
      saved_.push_back({name, value ? std::optional<std::string>(value) : std::nullopt});
      setenv(name, "/nonexistent/driver.json", 1);
    }
  }
  ~WithoutVulkanDrivers() {
    for (const auto& [name, value] : saved_) value ? setenv(name, value->c_str(), 1) : unsetenv(name);
  }

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> saved_;
};

TEST(Adapters, NullBackendCountsAsNone) {
  const WithoutVulkanDrivers none;
  const Result<std::vector<Capabilities>> adapters = list_adapters();
  ASSERT_TRUE(adapters.ok());
  for (const Capabilities& adapter : *adapters) EXPECT_NE(adapter.backend, "null");
  DeviceOptions options;
  options.allow_software = true;
  options.backend = "vulkan";
  const Result<std::unique_ptr<Device>> device = Device::create(options);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().code, ErrorCode::not_found);
}

TEST(Adapters, TheSelectedOneIsListedWithItsLimits) {
  const Result<std::vector<Capabilities>> adapters = list_adapters();
  ASSERT_TRUE(adapters.ok());
  ASSERT_FALSE(adapters->empty()) << "no adapter: set VK_DRIVER_FILES";
  for (const Capabilities& adapter : *adapters) {
    EXPECT_FALSE(adapter.name.empty());
    EXPECT_NE(adapter.backend, "null");
    EXPECT_GE(adapter.storage_binding_bytes_max, 128ull << 20);
    EXPECT_GE(adapter.workgroups_per_dimension_max, 65535u);
    EXPECT_TRUE(check_required(adapter).ok());
  }
}

TEST(AdapterReport, NamesWhatIsMissing) {
  Capabilities adapter;
  adapter.name = "small";
  adapter.workgroup_invocations_max = 128;
  adapter.workgroup_storage_bytes_max = 16384;
  adapter.storage_buffers_max = 8;
  adapter.storage_binding_bytes_max = 128ull << 20;
  const std::vector<Lack> lacks = lacks_of(adapter);
  ASSERT_FALSE(lacks.empty());
  EXPECT_TRUE(lacks.front().required);
  EXPECT_NE(lacks.front().feature.find("invocations"), std::string::npos);
  EXPECT_FALSE(check_required(adapter).ok());
  adapter.workgroup_invocations_max = 256;
  EXPECT_TRUE(check_required(adapter).ok());
}

TEST(AdapterReport, AFullAdapterLacksNothing) {
  Capabilities adapter;
  adapter.workgroup_invocations_max = 1024;
  adapter.workgroup_storage_bytes_max = 49152;
  adapter.storage_buffers_max = 16;
  adapter.storage_binding_bytes_max = 4ull << 30;
  adapter.f16 = adapter.subgroups = adapter.subgroup_matrix = adapter.timestamps = true;
  adapter.subgroup_matrix_shapes = {{"f16", "f32", 16, 16, 16}};
  EXPECT_TRUE(lacks_of(adapter).empty());
}

}  // namespace
}  // namespace chorus::gpu
