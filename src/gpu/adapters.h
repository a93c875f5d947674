// Instance, adapters and what they offer. Owns: toggles, the choice of an adapter. Must not know: buffers, pipelines.
#pragma once

#include <dawn/native/DawnNative.h>
#include <webgpu/webgpu_cpp.h>

#include <memory>
#include <vector>

#include "base/result.h"
#include "gpu/device.h"

namespace chorus::gpu {

// The toggle list of a set. Dawn honours each toggle at its own stage only, so the same list is chained to instance, adapter and device.
class Toggles {
 public:
  explicit Toggles(ToggleSet set);
  Toggles(const Toggles&) = delete;
  Toggles& operator=(const Toggles&) = delete;
  wgpu::DawnTogglesDescriptor* chain() { return &descriptor_; }

 private:
  std::vector<const char*> enabled_;
  std::vector<const char*> disabled_;
  wgpu::DawnTogglesDescriptor descriptor_;
};

struct FoundAdapter {
  wgpu::Adapter adapter;
  wgpu::AdapterType type = wgpu::AdapterType::Unknown;
  Capabilities capabilities;
};

// A Dawn instance that can wait with a time limit. `log`, which must outlive it, gets what Dawn would print.
std::unique_ptr<dawn::native::Instance> make_instance(Toggles& toggles, LogSink* log);
// From the second call on: drivers stay loaded until the process ends. One that is unloaded and loaded with every device may run out of
// memory for its thread-local variables (NVIDIA's did after some twenty devices). The first call does nothing, because it takes as long as
// a device.
void keep_drivers_loaded();
// Every adapter but those of the Null backend.
std::vector<FoundAdapter> find_adapters(const dawn::native::Instance& instance, Toggles& toggles);
// The best adapter that satisfies the options. The error lists what was found and why each was refused.
Result<FoundAdapter> choose_adapter(std::vector<FoundAdapter> found, const DeviceOptions& options);
// Features that a device asks for, of those the adapter has.
std::vector<wgpu::FeatureName> wanted_features(const wgpu::Adapter& adapter, const DeviceOptions& options);
// Applies the test hooks of the options.
void apply_caps(Capabilities& capabilities, const DeviceOptions& options);

}  // namespace chorus::gpu
