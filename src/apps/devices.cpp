// `chorus devices`: adapters with features and limits; --self-test proves every kernel variant on one of them.
#include <algorithm>
#include <cstdio>

#include "apps/command.h"
#include "apps/help.h"
#include "base/bytes.h"
#include "selftest/selftest.h"
#ifdef CHORUS_WEBGPU
#include "gpu/device.h"
#endif

namespace chorus::apps {

namespace {

using formats::JsonValue;

struct DevicesFlags {
  DeviceFlags device;
  bool self_test = false, full = false, json = false;
};

#ifdef CHORUS_WEBGPU
std::string lacks(const gpu::Capabilities& c) {
  std::string text;
  auto note = [&](bool has, const char* what) {
    if (!has) text += (text.empty() ? "" : ", ") + std::string(what);
  };
  note(c.f16, "f16");
  note(c.subgroups, "subgroups");
  note(c.subgroup_matrix, "subgroup matrices");
  note(c.timestamps, "timestamps");
  note(c.workgroup_storage_bytes_max >= 32768, "32 KiB of workgroup memory");
  note(c.storage_binding_bytes_max >= (1ull << 30), "1 GiB bindings");
  return text.empty() ? "nothing" : text;
}

void print_adapter(const gpu::Capabilities& c) {
  print("%s (%s%s)\n", c.name.c_str(), c.backend.c_str(), c.software ? ", software" : "");
  print("    driver: %s\n", c.driver.c_str());
  print("    subgroups %u to %u, workgroup: %u invocations, %s\n", c.subgroup_size_min, c.subgroup_size_max, c.workgroup_invocations_max,
        size_text(c.workgroup_storage_bytes_max).c_str());
  print("    storage: %u buffers, %s a binding, %s a buffer\n", c.storage_buffers_max, size_text(c.storage_binding_bytes_max).c_str(),
        size_text(c.buffer_bytes_max).c_str());
  print("    lacks: %s\n", lacks(c).c_str());
}

JsonValue adapter_json(const gpu::Capabilities& c) {
  JsonValue item = JsonValue::object();
  auto integer = [](uint64_t value) { return JsonValue::integer(static_cast<int64_t>(value)); };
  item.set("name", JsonValue::string(c.name));
  item.set("vendor", JsonValue::string(c.vendor));
  item.set("architecture", JsonValue::string(c.architecture));
  item.set("driver", JsonValue::string(c.driver));
  item.set("backend", JsonValue::string(c.backend));
  item.set("software", JsonValue::boolean(c.software));
  item.set("f16", JsonValue::boolean(c.f16));
  item.set("subgroups", JsonValue::boolean(c.subgroups));
  item.set("subgroup_matrix", JsonValue::boolean(c.subgroup_matrix));
  item.set("timestamps", JsonValue::boolean(c.timestamps));
  item.set("subgroup_size_min", integer(c.subgroup_size_min));
  item.set("subgroup_size_max", integer(c.subgroup_size_max));
  item.set("storage_binding_bytes_max", integer(c.storage_binding_bytes_max));
  item.set("buffer_bytes_max", integer(c.buffer_bytes_max));
  item.set("workgroup_invocations_max", integer(c.workgroup_invocations_max));
  item.set("workgroup_storage_bytes_max", integer(c.workgroup_storage_bytes_max));
  item.set("workgroups_per_dimension_max", integer(c.workgroups_per_dimension_max));
  item.set("storage_buffers_max", integer(c.storage_buffers_max));
  item.set("lacks", JsonValue::string(lacks(c)));
  return item;
}
#endif

int list_devices(const DevicesFlags& flags) {
  JsonValue list = JsonValue::array();
  size_t count = 0;
#ifdef CHORUS_WEBGPU
  auto adapters = gpu::list_adapters();
  if (!adapters) return fail(adapters.error());
  count = adapters->size();
  for (const gpu::Capabilities& adapter : *adapters) {
    if (flags.json) {
      list.push_back(adapter_json(adapter));
    } else {
      print_adapter(adapter);
    }
  }
#endif
  DeviceFlags cpu = flags.device;
  cpu.device = "cpu";
  cpu.adapter.clear();
  auto choice = choose_backend(cpu);
  if (!choice) return fail(choice.error());
  if (flags.json) {
    JsonValue body = JsonValue::object();
    body.set("adapters", std::move(list));
    body.set("cpu", JsonValue::string(choice->backend->info().device));
    print("%s\n", formats::json_dumps(body).c_str());
    return kExitOk;
  }
  if (count == 0) print("no WebGPU adapter\n");
  print("cpu: %s\n", choice->backend->info().device.c_str());
  return kExitOk;
}

struct Tally {
  size_t cases = 0, failed = 0;
  JsonValue json = JsonValue::array();
};

// Results of one operation, grouped by variant; failures in full. Without a forced variant the backend chose.
void report_operation(const std::vector<selftest::CaseResult>& results, bool json, Tally& tally) {
  for (size_t begin = 0; begin < results.size();) {
    const std::string variant = results[begin].variant.empty() ? "(chosen)" : results[begin].variant;
    size_t end = begin, failed = 0;
    double worst = 0;
    for (; end < results.size() && results[end].variant == results[begin].variant; ++end) {
      const selftest::CaseResult& result = results[end];
      if (result.tolerance > 0) worst = std::max(worst, result.error / result.tolerance);
      if (result.pass) continue;
      ++failed;
      if (!json) print("FAILED %s/%s %s: %s\n", result.operation.c_str(), variant.c_str(), result.name.c_str(), result.detail.c_str());
    }
    tally.cases += end - begin;
    tally.failed += failed;
    if (json) {
      JsonValue item = JsonValue::object();
      item.set("operation", JsonValue::string(results[begin].operation));
      item.set("variant", JsonValue::string(variant));
      item.set("cases", JsonValue::integer(static_cast<int64_t>(end - begin)));
      item.set("failed", JsonValue::integer(static_cast<int64_t>(failed)));
      tally.json.push_back(std::move(item));
    } else {
      print("%-16s %-28s %4zu cases  worst error %.2f of its tolerance  %s\n", results[begin].operation.c_str(), variant.c_str(),
            end - begin, worst, failed == 0 ? "ok" : "FAILED");
    }
    begin = end;
  }
}

int self_test(const DevicesFlags& flags) {
  auto choice = choose_backend(flags.device);
  if (!choice) return fail(choice.error());
  compute::Backend& backend = *choice->backend;
  if (!flags.json)
    print("self-test on %s, %s\nreason: %s\n", backend.info().kind.c_str(), backend.info().device.c_str(), choice->reason.c_str());
  Tally tally;
  size_t silent = 0;
  for (const selftest::OperationCases& operation : selftest::all_operations()) {
    const auto results = operation.run(backend, flags.full ? selftest::CaseSet::full : selftest::CaseSet::quick);
    if (results.empty()) ++silent;
    report_operation(results, flags.json, tally);
  }
  const bool good = tally.failed == 0 && silent == 0 && tally.cases > 0;
  if (flags.json) {
    JsonValue body = JsonValue::object();
    body.set("device", JsonValue::string(backend.info().device));
    body.set("operations", std::move(tally.json));
    body.set("pass", JsonValue::boolean(good));
    print("%s\n", formats::json_dumps(body).c_str());
  } else {
    print("verdict: %s (%zu cases, %zu failed, %zu operations without a case)\n", good ? "ok" : "FAILED", tally.cases, tally.failed,
          silent);
  }
  return good ? kExitOk : kExitVerdict;
}

}  // namespace

Command add_devices(CLI::App& app) {
  auto flags = std::make_shared<DevicesFlags>();
  CLI::App* command = app.add_subcommand("devices", "List adapters; prove the kernels on one")->group("This machine");
  command->add_flag("--self-test", flags->self_test, "Run a known-answer test of every kernel variant on the chosen device")
      ->group("Self-test");
  command->add_flag("--full", flags->full, "With --self-test: odd and large shapes too (minutes on a software adapter)")
      ->group("Self-test");
  add_device_flags(*command, flags->device, false);
  add_json_flag(*command, flags->json);
  add_rare_flags(*command, flags->device);
  return {command, [flags] { return flags->self_test ? self_test(*flags) : list_devices(*flags); }};
}

}  // namespace chorus::apps
