// What the commands of `chorus` share: options of device and model, exit codes, output. Front door of apps: main.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/output.h"
#include "base/log.h"
#include "base/result.h"
#include "chorus/chorus.h"
#include "formats/json.h"
#include "runtime/backend_choice.h"
#include "tensor/dtype.h"

namespace chorus::apps {

// Documented in the README.
enum ExitCode : int {
  kExitOk = 0,
  kExitVerdict = 1,   // the command ran, and its verdict is "no": verify or self-test failed
  kExitUsage = 2,     // wrong options
  kExitInput = 3,     // a file or request is malformed, missing, over a limit or not supported
  kExitDevice = 4,    // no adapter, device lost, out of memory
  kExitInternal = 5,  // a fault of this program, or the system refused a read or write
};
int exit_code_of(const Error& error);

// Prints one line to standard error and returns the exit code.
int fail(const Error& error);

struct DeviceFlags {
  std::string device = "auto";  // auto | webgpu | cpu
  std::string adapter;
  std::string dtype = "f32";  // f32 | f16 | bf16
  std::string pipeline_cache;
  uint32_t threads = 0;
  bool safe = false;
  bool verbose = false;
};
// --device, --adapter, --dtype; the rest of the flags, and --help, come last.
void add_device_flags(CLI::App& command, DeviceFlags& flags, bool with_dtype = true);
void add_rare_flags(CLI::App& command, DeviceFlags& flags);
void add_base_option(CLI::App& command, std::string& base);
void add_json_flag(CLI::App& command, bool& json);

// Notes of the library on standard error: all with `verbose`, else warnings only.
LogSink log_to_stderr(bool verbose);
runtime::BackendRequest backend_request(const DeviceFlags& flags, bool profile_kernels = false);
Result<runtime::BackendChoice> choose_backend(const DeviceFlags& flags, bool profile_kernels = false);
DType dtype_of(const DeviceFlags& flags);
ModelOptions model_options(const DeviceFlags& flags);

// An option that takes a size as parse_size (base/bytes.h) reads it, not 0.
CLI::Option* add_size_option(CLI::App& command, const std::string& name, uint64_t& bytes, const std::string& description);

// Options of whole numbers, of all commands: only decimal digits that fit the option's type. The parser itself takes the nearest number for
// one past 64 bits, lets a negative one wrap around and reads 010 as eight.
void check_whole_numbers(CLI::App& app);

// A percentage on standard error when that is a terminal; silent for loads under a second.
std::function<void(uint64_t, uint64_t)> load_progress();

// Standard input for "-", else the file. At most `bytes_max` bytes.
Result<std::string> read_text(const std::string& path, uint64_t bytes_max);

// Median and spread of repeated measurements, in the unit of the values.
struct Summary {
  double median = 0, low = 0, high = 0;
  size_t count = 0;
};
Summary summarize(std::vector<double> values);

// Each adds its subcommand and returns the function that runs it.
struct Command {
  CLI::App* app = nullptr;
  std::function<int()> run;
};
Command add_decide(CLI::App& app);
Command add_verify(CLI::App& app);
Command add_tokenize(CLI::App& app);
Command add_devices(CLI::App& app);
Command add_inspect(CLI::App& app);
Command add_pack(CLI::App& app);
Command add_make_checkpoint(CLI::App& app);
Command add_generate(CLI::App& app);
Command add_chat(CLI::App& app);
Command add_perplexity(CLI::App& app);
Command add_bench(CLI::App& app);

// The halves of `bench`, each a subcommand of it.
Command add_bench_decide(CLI::App& bench);
Command add_bench_generate(CLI::App& bench);

}  // namespace chorus::apps
