// The program `chorus`: reads the command line, builds what the command needs, runs it.
#include <exception>
#include <vector>

#include "apps/command.h"

int main(int argc, char** argv) {
  using namespace chorus::apps;
  CLI::App app{"Dawn Chorus: decision models on WebGPU and the CPU"};
  app.set_version_flag("--version", CHORUS_VERSION);
  app.require_subcommand(1);
  app.footer("Exit codes: 0 done; 1 verdict is no; 2 command line; 3 input; 4 device or memory; 5 internal.");
  const std::vector<Command> commands = {add_decide(app),  add_verify(app), add_tokenize(app), add_devices(app),
                                         add_inspect(app), add_pack(app),   add_bench(app)};
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  try {
    for (const Command& command : commands) {
      if (command.app->parsed()) return command.run();
    }
  } catch (const std::bad_alloc&) {
    return fail(chorus::make_error(chorus::ErrorCode::out_of_memory, "out of memory"));
  } catch (const std::exception& error) {  // a library's exception that got past its border
    return fail(chorus::make_error(chorus::ErrorCode::internal, std::string("unexpected: ") + error.what()));
  }
  return kExitUsage;
}
