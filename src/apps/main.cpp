// The program `chorus`: reads the command line, builds what the command needs, runs it.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <exception>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "apps/command.h"
#include "apps/help.h"
#include "apps/output.h"

namespace {

using namespace chorus::apps;

// A closed standard stream would lend its number to the next file that is opened, and output would land in that file. The
// stand-in refuses what the stream is for, so that a read or write of it is still an error.
bool hold_standard_streams() {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (::fcntl(number, F_GETFD) >= 0 || errno != EBADF) continue;
    if (::open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY) != number) return false;
  }
  return true;
}

// A mapped file that another program cut, or that the disk could not give: there is no call that could return an error.
void on_lost_page(int) {
  constexpr std::string_view kText = "chorus: a model file was cut, or could not be read, while it was in use\n";
  [[maybe_unused]] const ssize_t count = ::write(STDERR_FILENO, kText.data(), kText.size());
  ::_exit(kExitInput);
}

// Results that did not arrive are a failure, whatever the command thought.
int after_output(int code) {
  const chorus::Status written = finish_output();
  return written ? code : fail(written.error());
}

// An unknown word comes first: the parser would rather say what else is missing.
int wrong_command_line(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  std::string what = unknown_word(app, argc, argv);
  if (what.empty()) what = error.what();
  fail(chorus::make_error(chorus::ErrorCode::invalid_argument, what + " (see " + help_hint(app) + ")"));
  return kExitUsage;
}

// --help and --version, which the parser would print past our output.
int print_help(const CLI::App& app, const CLI::ParseError& error) {
  std::ostringstream text;
  const int code = app.exit(error, text, text);
  print_now(text.str());
  return after_output(code);
}

int run(const std::vector<Command>& commands) {
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    const std::string name = command.app->get_name();
    try {
      return command.run();
    } catch (const std::bad_alloc&) {
      return fail(chorus::make_error(chorus::ErrorCode::out_of_memory, name + ": out of memory"));
    } catch (const std::exception& error) {  // a library's exception that got past its border
      return fail(chorus::make_error(chorus::ErrorCode::internal, name + ": unexpected: " + error.what()));
    }
  }
  return kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  if (!hold_standard_streams()) return kExitInternal;
  begin_output();
  std::signal(SIGXFSZ, SIG_IGN);  // a file past the limit of the shell: the write fails, and what was written is removed
  std::signal(SIGBUS, on_lost_page);
  std::signal(SIGPIPE, SIG_IGN);  // output that nobody reads: the write fails, which is said at the end
  CLI::App app{"Dawn Chorus: decision models and language models on WebGPU and the CPU", "chorus"};
  app.formatter(help_formatter());
  app.require_subcommand(1);
  const std::vector<Command> commands = {add_decide(app),  add_generate(app),   add_chat(app),           add_inspect(app),
                                         add_verify(app),  add_perplexity(app), add_tokenize(app),       add_pack(app),
                                         add_devices(app), add_bench(app),      add_make_checkpoint(app)};
  app.set_version_flag("--version", CHORUS_VERSION, "Print the version")->group("Options");
  app.set_help_flag("-h,--help", "Print this help; after a command, its options")->group("Options");
  app.footer("Exit codes: 0 done; 1 verdict is no; 2 command line; 3 input; 4 device or memory; 5 internal.");
  check_whole_numbers(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return print_help(app, error);
    return wrong_command_line(app, error, argc, argv);
  }
  return after_output(run(commands));
}
