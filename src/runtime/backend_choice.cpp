#include "runtime/backend_choice.h"

#include <string_view>
#include <utility>

#include "backends/cpu/cpu_backend.h"
#ifdef CHORUS_WEBGPU
#include "backends/webgpu/webgpu_backend.h"
#endif

namespace chorus::runtime {

namespace {

Result<std::unique_ptr<compute::Backend>> make_webgpu(const BackendRequest& request, bool allow_software) {
#ifdef CHORUS_WEBGPU
  gpu::DeviceOptions options;
  options.adapter = request.adapter;
  options.allow_software = allow_software;
  options.power = gpu::PowerPreference::high;
  options.toggles = request.fast_toggles ? gpu::ToggleSet::fast : gpu::ToggleSet::safe;
  options.timestamps = request.profile_kernels;
  options.cache_directory = request.pipeline_cache;
  return backends::create_webgpu_backend(options, request.log);
#else
  (void)request;
  (void)allow_software;
  return make_error(ErrorCode::unsupported,
                    "webgpu: WebGPU is not built into this program (CHORUS_WEBGPU=OFF); to have it, build with CHORUS_WEBGPU=ON");
#endif
}

std::unique_ptr<compute::Backend> make_cpu(const BackendRequest& request) {
  backends::CpuOptions options;
  options.threads = request.cpu_threads;
  options.profile = request.profile_kernels;
  return backends::create_cpu_backend(options);
}

// What was asked for, what runs, why, and (at the end of the error) what to do.
std::string fallback_reason(const Error& error) {
  constexpr std::string_view kPrefix = "webgpu: ";
  std::string why = error.to_line();
  if (why.starts_with(kPrefix)) why.erase(0, kPrefix.size());
  return "auto was asked for, the CPU runs it: " + why;
}

}  // namespace

Result<BackendChoice> choose_backend(const BackendRequest& request) {
  BackendChoice choice;
  if (request.device == DeviceRequest::cpu) {
    choice.backend = make_cpu(request);
    choice.reason = "cpu was asked for";
    return choice;
  }
  const bool by_request = request.device == DeviceRequest::webgpu || !request.adapter.empty();
  auto webgpu = make_webgpu(request, by_request);
  if (webgpu.ok()) {
    choice.backend = std::move(webgpu).value();
    choice.reason = by_request ? "webgpu was asked for" : "auto was asked for, and there is a hardware WebGPU adapter";
    if (choice.backend->info().software) choice.reason += "; the adapter is a software one, slower than the CPU itself (--device cpu)";
    return choice;
  }
  if (by_request) {
    Error error = std::move(webgpu).error();
    // Here nothing but an adapter can be missing. To callers a device that is not there is like one that is gone: no file is at fault.
    if (error.code == ErrorCode::not_found) error.code = ErrorCode::device_lost;
    return error;
  }
  choice.backend = make_cpu(request);
  choice.reason = fallback_reason(webgpu.error());
  return choice;
}

}  // namespace chorus::runtime
