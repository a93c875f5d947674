#include "gpu/adapters.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "gpu/errors.h"

namespace chorus::gpu {
namespace {

std::string text_of(wgpu::StringView view) { return std::string(std::string_view(view)); }

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::string backend_name(wgpu::BackendType type) {
  switch (type) {
    case wgpu::BackendType::Vulkan:
      return "vulkan";
    case wgpu::BackendType::Metal:
      return "metal";
    case wgpu::BackendType::D3D12:
      return "d3d12";
    case wgpu::BackendType::D3D11:
      return "d3d11";
    case wgpu::BackendType::OpenGL:
      return "opengl";
    case wgpu::BackendType::OpenGLES:
      return "opengles";
    case wgpu::BackendType::WebGPU:
      return "webgpu";
    case wgpu::BackendType::Null:
      return "null";
    case wgpu::BackendType::Undefined:
      break;
  }
  return "unknown";
}

std::string_view component_name(wgpu::SubgroupMatrixComponentType type) {
  switch (type) {
    case wgpu::SubgroupMatrixComponentType::F32:
      return "f32";
    case wgpu::SubgroupMatrixComponentType::F16:
      return "f16";
    case wgpu::SubgroupMatrixComponentType::U32:
      return "u32";
    case wgpu::SubgroupMatrixComponentType::I32:
      return "i32";
    case wgpu::SubgroupMatrixComponentType::U8:
      return "u8";
    case wgpu::SubgroupMatrixComponentType::I8:
      return "i8";
  }
  return "?";
}

void read_limits(const wgpu::Adapter& adapter, Capabilities& out) {
  wgpu::Limits limits;
  adapter.GetLimits(&limits);
  out.storage_binding_bytes_max = limits.maxStorageBufferBindingSize & ~uint64_t{15};
  out.buffer_bytes_max = limits.maxBufferSize & ~uint64_t{15};
  out.workgroup_invocations_max = limits.maxComputeInvocationsPerWorkgroup;
  out.workgroup_size_x_max = limits.maxComputeWorkgroupSizeX;
  out.workgroup_storage_bytes_max = limits.maxComputeWorkgroupStorageSize;
  out.workgroups_per_dimension_max = limits.maxComputeWorkgroupsPerDimension;
  out.storage_buffers_max = limits.maxStorageBuffersPerShaderStage;
  out.storage_offset_alignment = limits.minStorageBufferOffsetAlignment;
  out.uniform_offset_alignment = limits.minUniformBufferOffsetAlignment;
}

FoundAdapter describe(wgpu::Adapter adapter) {
  FoundAdapter found;
  Capabilities& out = found.capabilities;
  out.subgroup_matrix = adapter.HasFeature(wgpu::FeatureName::ChromiumExperimentalSubgroupMatrix);
  wgpu::AdapterInfo info;
  wgpu::AdapterPropertiesSubgroupMatrixConfigs matrices;
  if (out.subgroup_matrix) info.nextInChain = &matrices;
  adapter.GetInfo(&info);
  found.type = info.adapterType;
  out.name = text_of(info.device);
  out.vendor = text_of(info.vendor);
  out.architecture = text_of(info.architecture);
  out.driver = one_line(std::string_view(info.description));
  out.backend = backend_name(info.backendType);
  out.software = info.adapterType == wgpu::AdapterType::CPU;
  out.f16 = adapter.HasFeature(wgpu::FeatureName::ShaderF16);
  out.subgroups = adapter.HasFeature(wgpu::FeatureName::Subgroups);
  out.subgroup_size_control = adapter.HasFeature(wgpu::FeatureName::SubgroupSizeControl);
  out.timestamps = adapter.HasFeature(wgpu::FeatureName::TimestampQuery);
  out.subgroup_size_min = info.subgroupMinSize;
  out.subgroup_size_max = info.subgroupMaxSize;
  for (size_t index = 0; index < matrices.configCount; ++index) {
    const wgpu::SubgroupMatrixConfig& config = matrices.configs[index];
    out.subgroup_matrix_shapes.push_back({std::string(component_name(config.componentType)),
                                          std::string(component_name(config.resultComponentType)), config.M, config.N, config.K});
  }
  read_limits(adapter, out);
  found.adapter = std::move(adapter);
  return found;
}

// Smaller is better. Native APIs come before OpenGL, which reaches the same processor with fewer features.
int rank(const FoundAdapter& found, PowerPreference power) {
  int order = 0;
  switch (found.type) {
    case wgpu::AdapterType::DiscreteGPU:
      order = power == PowerPreference::low ? 1 : 0;
      break;
    case wgpu::AdapterType::IntegratedGPU:
      order = power == PowerPreference::low ? 0 : 1;
      break;
    case wgpu::AdapterType::Unknown:
      order = 2;
      break;
    case wgpu::AdapterType::CPU:
      order = 3;
      break;
  }
  const bool opengl = found.capabilities.backend.starts_with("opengl");
  return order * 2 + (opengl ? 1 : 0);
}

// Only notes: an API that the machine lacks is not the user's concern, and a failure comes back as the error of the call.
void forward_log(wgpu::LoggingType, wgpu::StringView message, LogSink* log) {
  log_to(*log, LogLevel::debug, "dawn: " + one_line(std::string_view(message)));
}

// Empty: the adapter will do.
std::string why_not(const Capabilities& adapter, const DeviceOptions& options) {
  if (!options.backend.empty() && lower(options.backend) != adapter.backend) return "not of backend " + options.backend;
  if (!options.adapter.empty() && lower(adapter.name).find(lower(options.adapter)) == std::string::npos) {
    return "no part of its name is " + quote_text(options.adapter);
  }
  if (adapter.software && !options.allow_software) return "a software adapter, which was not asked for";
  if (options.timestamps && !adapter.timestamps) return "no timestamp queries, which times of kernels need";
  return {};
}

}  // namespace

Toggles::Toggles(ToggleSet set) {
  // Without these two an NVIDIA card offers neither f16 nor matrix instructions.
  enabled_ = {"allow_unsafe_apis", "vulkan_enable_f16_on_nvidia"};
  // An uncaptured error reaches our record before the failing call returns.
  enabled_.push_back("enable_immediate_error_handling");
  // Timestamps at the device's own resolution instead of steps of 0.1 ms.
  disabled_.push_back("timestamp_quantization");
  // Workgroup memory is zeroed by a loop in the shader: SwiftShader turns the driver's way into a store per element, which takes seconds to
  // compile.
  disabled_.push_back("use_vulkan_zero_initialize_workgroup_memory_extension");
  if (set == ToggleSet::fast) {
    enabled_.insert(enabled_.end(),
                    {"skip_validation", "disable_robustness", "disable_workgroup_init", "disable_polyfills_on_integer_div_and_mod"});
  }
  descriptor_.enabledToggleCount = enabled_.size();
  descriptor_.enabledToggles = enabled_.data();
  descriptor_.disabledToggleCount = disabled_.size();
  descriptor_.disabledToggles = disabled_.data();
}

std::unique_ptr<dawn::native::Instance> make_instance(Toggles& toggles, LogSink* log) {
  const wgpu::InstanceFeatureName feature = wgpu::InstanceFeatureName::TimedWaitAny;
  wgpu::InstanceDescriptor descriptor;
  dawn::native::DawnInstanceDescriptor logging;
  logging.nextInChain = toggles.chain();
  logging.SetLoggingCallback(forward_log, log);
  descriptor.nextInChain = &logging;
  descriptor.requiredFeatureCount = 1;
  descriptor.requiredFeatures = &feature;
  return std::make_unique<dawn::native::Instance>(&descriptor);
}

void keep_drivers_loaded() {
  static std::atomic<bool> first{true};
  if (first.exchange(false)) return;
  struct Kept {
    dawn::native::Instance instance;
    std::vector<FoundAdapter> adapters;
  };
  // Never destroyed: nothing at the end of the process may still need a driver that is gone.
  [[maybe_unused]] static const Kept* const kept = [] {
    Toggles toggles(ToggleSet::safe);
    auto* made = new Kept;
    made->adapters = find_adapters(made->instance, toggles);
    return made;
  }();
}

std::vector<FoundAdapter> find_adapters(const dawn::native::Instance& instance, Toggles& toggles) {
  wgpu::RequestAdapterOptions options;
  options.nextInChain = toggles.chain();
  options.featureLevel = wgpu::FeatureLevel::Core;
  std::vector<FoundAdapter> found;
  for (const dawn::native::Adapter& native : instance.EnumerateAdapters(&options)) {
    FoundAdapter adapter = describe(wgpu::Adapter(native.Get()));
    if (adapter.capabilities.backend != "null") found.push_back(std::move(adapter));
  }
  return found;
}

Result<FoundAdapter> choose_adapter(std::vector<FoundAdapter> found, const DeviceOptions& options) {
  if (found.empty()) return make_error(ErrorCode::not_found, "webgpu: no adapter found; install the Vulkan driver of a GPU");
  if (!options.allow_software && options.adapter.empty() &&
      std::all_of(found.begin(), found.end(), [](const FoundAdapter& adapter) { return adapter.capabilities.software; })) {
    return make_error(ErrorCode::not_found, "webgpu: no GPU found, only " + found[0].capabilities.name +
                                                ", a software adapter, slower than the CPU itself; --device webgpu takes it all the same");
  }
  std::stable_sort(found.begin(), found.end(),
                   [&](const FoundAdapter& a, const FoundAdapter& b) { return rank(a, options.power) < rank(b, options.power); });
  std::string refused;
  for (FoundAdapter& adapter : found) {
    const std::string reason = why_not(adapter.capabilities, options);
    if (reason.empty()) return std::move(adapter);
    refused += (refused.empty() ? "" : "; ") + adapter.capabilities.name + " (" + adapter.capabilities.backend + "): " + reason;
  }
  return make_error(ErrorCode::not_found, "webgpu: no adapter fits: " + refused);
}

std::vector<wgpu::FeatureName> wanted_features(const wgpu::Adapter& adapter, const DeviceOptions& options) {
  std::vector<wgpu::FeatureName> features;
  const auto want = [&](wgpu::FeatureName feature) {
    if (adapter.HasFeature(feature)) features.push_back(feature);
  };
  if (!options.hide_f16) want(wgpu::FeatureName::ShaderF16);
  if (!options.hide_subgroups) {
    want(wgpu::FeatureName::Subgroups);
    want(wgpu::FeatureName::SubgroupSizeControl);
    // Matrices of f16 are useless, and refused by some drivers, without f16.
    if (!options.hide_f16) want(wgpu::FeatureName::ChromiumExperimentalSubgroupMatrix);
  }
  if (options.timestamps) want(wgpu::FeatureName::TimestampQuery);
  return features;
}

void apply_caps(Capabilities& capabilities, const DeviceOptions& options) {
  if (options.hide_f16) capabilities.f16 = false;
  if (options.hide_subgroups) {
    capabilities.subgroups = capabilities.subgroup_size_control = false;
    capabilities.subgroup_size_min = capabilities.subgroup_size_max = 0;
  }
  if (options.hide_subgroups || options.hide_f16) {
    capabilities.subgroup_matrix = false;
    capabilities.subgroup_matrix_shapes.clear();
  }
  if (options.storage_binding_bytes_cap != 0) {
    capabilities.storage_binding_bytes_max = std::min(capabilities.storage_binding_bytes_max, options.storage_binding_bytes_cap);
  }
  if (options.workgroups_per_dimension_cap != 0) {
    capabilities.workgroups_per_dimension_max = std::min(capabilities.workgroups_per_dimension_max, options.workgroups_per_dimension_cap);
  }
  if (!options.timestamps) capabilities.timestamps = false;
}

Result<std::vector<Capabilities>> list_adapters() {
  Toggles toggles(ToggleSet::safe);
  LogSink silent;
  const std::unique_ptr<dawn::native::Instance> instance = make_instance(toggles, &silent);
  std::vector<Capabilities> result;
  for (FoundAdapter& found : find_adapters(*instance, toggles)) result.push_back(std::move(found.capabilities));
  return result;
}

}  // namespace chorus::gpu
