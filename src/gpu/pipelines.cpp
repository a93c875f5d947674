#include "gpu/pipelines.h"

#include <utility>

namespace chorus::gpu {
namespace {

std::string name_of(const ShaderSource& shader) { return std::string(shader.kernel) + "/" + std::string(shader.variant); }

bool same_name(const std::string& name, const ShaderSource& shader) {
  const size_t kernel = shader.kernel.size();
  return name.size() == kernel + 1 + shader.variant.size() && std::string_view(name).substr(0, kernel) == shader.kernel &&
         std::string_view(name).substr(kernel + 1) == shader.variant;
}

// The first error of a compilation, as "line 12: unresolved value 'x'"; empty when there is none.
struct CompilationErrors {
  std::string first;
  uint32_t count = 0;
};

}  // namespace

uint64_t access_key(std::span<const Access> access) {
  uint64_t key = 1;
  for (const Access one : access) key = key << 1 | (one == Access::read_write ? 1u : 0u);
  return key;
}

Result<const Pipeline*> Pipelines::get(const ShaderSource& shader, std::span<const Access> access) {
  const auto found = pipelines_.find(shader.text.data());
  if (found != pipelines_.end() && found->second->text.size() == shader.text.size() && same_name(found->second->name, shader)) {
    const Pipeline& pipeline = *found->second;
    if (pipeline.layout->key != access_key(access)) {
      return make_error(ErrorCode::internal, "webgpu: kernel " + pipeline.name + " was compiled for other storage bindings than the " +
                                                 std::to_string(access.size()) + " of this dispatch");
    }
    return &pipeline;
  }
  CHORUS_ASSIGN(std::unique_ptr<Pipeline> built, build(shader, access));
  const Pipeline* result = built.get();
  pipelines_[shader.text.data()] = std::move(built);
  return result;
}

Result<const Layout*> Pipelines::layout_of(std::span<const Access> access) {
  const uint64_t key = access_key(access);
  if (const auto found = layouts_.find(key); found != layouts_.end()) return found->second.get();
  if (access.size() > core_.capabilities.storage_buffers_max) {
    return make_error(ErrorCode::unsupported, "webgpu: " + std::to_string(access.size()) + " storage bindings asked, the adapter allows " +
                                                  std::to_string(core_.capabilities.storage_buffers_max));
  }
  std::vector<wgpu::BindGroupLayoutEntry> entries(access.size() + 1);
  entries[0].binding = 0;
  entries[0].visibility = wgpu::ShaderStage::Compute;
  entries[0].buffer.type = wgpu::BufferBindingType::Uniform;
  entries[0].buffer.hasDynamicOffset = true;
  entries[0].buffer.minBindingSize = kParamsSlotBytes;
  for (size_t index = 0; index < access.size(); ++index) {
    wgpu::BindGroupLayoutEntry& entry = entries[index + 1];
    entry.binding = static_cast<uint32_t>(index + 1);
    entry.visibility = wgpu::ShaderStage::Compute;
    entry.buffer.type = access[index] == Access::read ? wgpu::BufferBindingType::ReadOnlyStorage : wgpu::BufferBindingType::Storage;
  }
  auto layout = std::make_unique<Layout>();
  layout->key = key;
  ErrorScopes scopes(core_.instance, core_.device, core_.errors);
  wgpu::BindGroupLayoutDescriptor group;
  group.entryCount = entries.size();
  group.entries = entries.data();
  layout->bind_group = core_.device.CreateBindGroupLayout(&group);
  wgpu::PipelineLayoutDescriptor pipeline;
  pipeline.bindGroupLayoutCount = 1;
  pipeline.bindGroupLayouts = &layout->bind_group;
  layout->pipeline = core_.device.CreatePipelineLayout(&pipeline);
  CHORUS_TRY(scopes.finish("create a pipeline layout of " + std::to_string(access.size()) + " storage bindings"));
  return (layouts_[key] = std::move(layout)).get();
}

Result<wgpu::ShaderModule> Pipelines::compile(const ShaderSource& shader, const std::string& name) {
  ErrorScopes scopes(core_.instance, core_.device, core_.errors);
  wgpu::ShaderSourceWGSL source;
  source.code = wgpu::StringView(shader.text);
  wgpu::ShaderModuleDescriptor descriptor;
  descriptor.nextInChain = &source;
  descriptor.label = wgpu::StringView(name);
  wgpu::ShaderModule shader_module = core_.device.CreateShaderModule(&descriptor);
  auto errors = std::make_shared<CompilationErrors>();
  const wgpu::Future future = shader_module.GetCompilationInfo(
      wgpu::CallbackMode::WaitAnyOnly,
      [](wgpu::CompilationInfoRequestStatus, const wgpu::CompilationInfo* info, std::shared_ptr<CompilationErrors>* owned) {
        for (size_t index = 0; info != nullptr && index < info->messageCount; ++index) {
          const wgpu::CompilationMessage& message = info->messages[index];
          if (message.type != wgpu::CompilationMessageType::Error) continue;
          if ((*owned)->count++ > 0) continue;
          (*owned)->first = "line " + std::to_string(message.lineNum) + ": " + one_line(std::string_view(message.message));
        }
        delete owned;
      },
      new std::shared_ptr<CompilationErrors>(errors));
  CHORUS_TRY(core_.wait_or_lose(future, "compiling " + name));
  Status status = scopes.finish("compile kernel " + name);
  if (errors->count > 0) {
    std::string more = errors->count > 1 ? " (and " + std::to_string(errors->count - 1) + " more)" : "";
    return make_error(ErrorCode::internal, "webgpu: kernel " + name + " does not compile: " + errors->first + more);
  }
  CHORUS_TRY(std::move(status));
  return shader_module;
}

Result<std::unique_ptr<Pipeline>> Pipelines::build(const ShaderSource& shader, std::span<const Access> access) {
  auto pipeline = std::make_unique<Pipeline>();
  pipeline->name = name_of(shader);
  pipeline->text = shader.text;
  CHORUS_ASSIGN(pipeline->layout, layout_of(access));
  CHORUS_ASSIGN(wgpu::ShaderModule shader_module, compile(shader, pipeline->name));
  ErrorScopes scopes(core_.instance, core_.device, core_.errors);
  wgpu::ComputePipelineDescriptor descriptor;
  descriptor.label = wgpu::StringView(pipeline->name);
  descriptor.layout = pipeline->layout->pipeline;
  descriptor.compute.module = shader_module;
  descriptor.compute.entryPoint = "main";
  pipeline->pipeline = core_.device.CreateComputePipeline(&descriptor);
  CHORUS_TRY(scopes.finish("create the pipeline of kernel " + pipeline->name));
  return pipeline;
}

}  // namespace chorus::gpu
