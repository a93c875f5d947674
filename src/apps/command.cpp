#include "apps/command.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <limits>
#include <type_traits>

#include "apps/help.h"
#include "base/bytes.h"

namespace chorus::apps {

int exit_code_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::invalid_input:
    case ErrorCode::limit_exceeded:
    case ErrorCode::not_found:
    case ErrorCode::unsupported:
      return kExitInput;
    case ErrorCode::out_of_memory:
    case ErrorCode::device_lost:
      return kExitDevice;
    case ErrorCode::io_failed:
    case ErrorCode::internal:
      break;
  }
  return kExitInternal;
}

int fail(const Error& error) {
  std::fprintf(stderr, "chorus: %s\n", error.to_line().c_str());
  return exit_code_of(error);
}

void add_device_flags(CLI::App& command, DeviceFlags& flags, bool with_dtype) {
  command.add_option("--device", flags.device, "auto: a GPU through WebGPU, else the CPU; webgpu: software adapters too")
      ->check(CLI::IsMember({"auto", "webgpu", "cpu"}))
      ->capture_default_str()
      ->group(kDeviceGroup);
  command.add_option("--adapter", flags.adapter, "Part of a WebGPU adapter's name; `chorus devices` lists them")
      ->option_text("NAME")
      ->group(kDeviceGroup);
  if (!with_dtype) return;
  command.add_option("--dtype", flags.dtype, "Type of the weights on the device")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}))
      ->capture_default_str()
      ->group(kDeviceGroup);
}

void add_rare_flags(CLI::App& command, DeviceFlags& flags) {
  command.add_option("--threads", flags.threads, "CPU threads (default: all)")->group(kRareGroup);
  command.add_option("--pipeline-cache", flags.pipeline_cache, "Keeps compiled GPU programs between runs")
      ->option_text("FOLDER")
      ->group(kRareGroup);
  command.add_flag("--safe", flags.safe, "Keep WebGPU's validation and bounds checks on")->group(kRareGroup);
  command.add_flag("-v,--verbose", flags.verbose, "Notes on standard error")->group(kRareGroup);
  add_help_flag(command);
}

void add_base_option(CLI::App& command, std::string& base) {
  command.add_option("--base", base, "Base model folder, for an adapter checkpoint")->option_text("FOLDER")->group(kModelGroup);
}

void add_json_flag(CLI::App& command, bool& json) { command.add_flag("--json", json, "Print JSON")->group(kOutputGroup); }

LogSink log_to_stderr(bool verbose) {
  auto logger = std::make_shared<spdlog::logger>("chorus", std::make_shared<spdlog::sinks::stderr_sink_st>());
  logger->set_pattern("chorus: %v");
  logger->set_level(verbose ? spdlog::level::debug : spdlog::level::warn);
  return [logger](LogLevel level, std::string_view line) {
    const spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn};
    logger->log(levels[static_cast<int>(level)], "{}", line);
  };
}

runtime::BackendRequest backend_request(const DeviceFlags& flags, bool profile_kernels) {
  runtime::BackendRequest request;
  request.device = flags.device == "cpu"      ? runtime::DeviceRequest::cpu
                   : flags.device == "webgpu" ? runtime::DeviceRequest::webgpu
                                              : runtime::DeviceRequest::automatic;
  request.adapter = flags.adapter;
  request.fast_toggles = !flags.safe;
  request.profile_kernels = profile_kernels;
  request.pipeline_cache = flags.pipeline_cache;
  request.cpu_threads = flags.threads;
  request.log = log_to_stderr(flags.verbose);
  return request;
}

Result<runtime::BackendChoice> choose_backend(const DeviceFlags& flags, bool profile_kernels) {
  return runtime::choose_backend(backend_request(flags, profile_kernels));
}

DType dtype_of(const DeviceFlags& flags) { return parse_dtype(flags.dtype).value_or(DType::f32); }

ModelOptions model_options(const DeviceFlags& flags) {
  ModelOptions options;
  options.device = flags.device == "cpu" ? DeviceChoice::cpu : flags.device == "webgpu" ? DeviceChoice::webgpu : DeviceChoice::automatic;
  options.adapter = flags.adapter;
  options.dtype = flags.dtype == "f16" ? WeightType::f16 : flags.dtype == "bf16" ? WeightType::bf16 : WeightType::f32;
  options.cpu_threads = flags.threads;
  options.fast_toggles = !flags.safe;
  options.pipeline_cache = flags.pipeline_cache;
  options.progress = load_progress();
  const LogSink sink = log_to_stderr(flags.verbose);
  options.log = [sink](std::string_view line) { sink(LogLevel::info, line); };
  return options;
}

CLI::Option* add_size_option(CLI::App& command, const std::string& name, uint64_t& bytes, const std::string& description) {
  const auto take = [&bytes, name](const std::string& text) {
    const auto size = parse_size(text);
    if (!size || *size == 0) throw CLI::ValidationError(name, "expected a size such as 512M or 4G, found " + quote_text(text));
    bytes = *size;
  };
  return command.add_option_function<std::string>(name, take, description)->type_name("SIZE");
}

namespace {

template <typename Number>
std::string whole_number_problem(const std::string& text) {
  Number value = 0;
  const size_t sign = std::is_signed_v<Number> && text.starts_with('-') ? 1 : 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool digits = text.size() > sign && text.find_first_not_of("0123456789", sign) == std::string::npos;
  const bool plain = text.size() == sign + 1 || (text.size() > sign && text[sign] != '0');
  if (digits && plain && read.ec == std::errc{}) return {};
  const auto low = std::numeric_limits<Number>::min(), high = std::numeric_limits<Number>::max();
  return "expected a whole number from " + std::to_string(low) + " to " + std::to_string(high) + ", found " + quote_text(text);
}

}  // namespace

void check_whole_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();  // what the parser calls integers; ranges follow it
    if (option->get_expected_max() == 0) continue;     // a flag
    if (type.starts_with("UINT")) option->check(whole_number_problem<uint64_t>, "", "");
    if (type.starts_with("INT")) option->check(whole_number_problem<int64_t>, "", "");
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) check_whole_numbers(*command);
}

std::function<void(uint64_t, uint64_t)> load_progress() {
  if (!isatty(STDERR_FILENO)) return {};
  const auto start = std::chrono::steady_clock::now();
  return [start, shown = -1](uint64_t done, uint64_t total) mutable {
    const int percent = total == 0 ? 100 : static_cast<int>(100 * done / total);
    const bool short_so_far = std::chrono::steady_clock::now() - start < std::chrono::seconds(1);
    if (percent == shown || (short_so_far && shown < 0)) return;
    shown = percent;
    std::fprintf(stderr, "\rloading weights: %3d %% of %s%s", percent, size_text(total).c_str(), percent == 100 ? "\n" : "");
  };
}

Result<std::string> read_text(const std::string& path, uint64_t bytes_max) {
  std::ifstream file;
  if (path != "-") {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) {
      const std::string name = path.empty() ? "text: expected the name of a file, found \"\"" : path + ": cannot open";
      return make_error(ErrorCode::not_found, name + ": " + (error ? error.message() : "No such file or directory"));
    }
    if (std::filesystem::is_directory(status)) return make_error(ErrorCode::invalid_input, path + ": expected a file, found a folder");
    file.open(path, std::ios::binary);
    if (!file) return make_error(ErrorCode::io_failed, path + ": cannot open: " + std::strerror(errno));
  }
  std::istream& stream = path == "-" ? std::cin : file;
  std::string text;
  char block[65536];
  while (stream.read(block, sizeof block) || stream.gcount() > 0) {
    text.append(block, static_cast<size_t>(stream.gcount()));
    if (text.size() > bytes_max) {
      return make_error(ErrorCode::limit_exceeded,
                        (path == "-" ? std::string("standard input") : path) + ": more than " + std::to_string(bytes_max) + " bytes");
    }
  }
  if (stream.bad()) return make_error(ErrorCode::io_failed, (path == "-" ? std::string("standard input") : path) + ": cannot read");
  return text;
}

Summary summarize(std::vector<double> values) {
  Summary summary;
  if (values.empty()) return summary;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  summary.median = values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
  summary.low = values.front();
  summary.high = values.back();
  summary.count = values.size();
  return summary;
}

}  // namespace chorus::apps
