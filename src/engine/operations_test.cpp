// The operations that a decision is said to run are those that it runs.
#include <gtest/gtest.h>

#include <set>

#include "backends/cpu/cpu_backend.h"
#include "engine/decision_engine.h"

namespace chorus::engine {
namespace {

TEST(DecisionEngine, NamesTheOperationsThatItRuns) {
  formats::OpenOptions open;
  open.base = CHORUS_MODELS "/kev-mini-base";
  const auto checkpoint = formats::open_checkpoint(CHORUS_MODELS "/kev-mini", open);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_line();
  backends::CpuOptions options;
  options.profile = true;
  const auto backend = backends::create_cpu_backend(options);
  const auto engine = DecisionEngine::load(*backend, *checkpoint, {});
  ASSERT_TRUE(engine.ok()) << engine.error().to_line();
  const std::vector<uint32_t> state = {5, 6, 7, 8};
  const auto prefix = (*engine)->prefill(state);
  ASSERT_TRUE(prefix.ok()) << prefix.error().to_line();
  const BranchQuery question{{9, 10, 11}, {0, 1}, 2};
  const auto scores = (*engine)->evaluate(*prefix, std::span(&question, 1));
  ASSERT_TRUE(scores.ok()) << scores.error().to_line();

  std::set<std::string> ran, said;
  const auto times = backend->take_kernel_times();
  ASSERT_TRUE(times.ok());
  for (const compute::KernelTime& time : *times) {
    if (time.kernel != "copy") ran.insert(time.kernel);
  }
  for (const std::string_view name : operations_of(checkpoint->config, true)) {
    said.insert(std::string(name));
    EXPECT_FALSE(backend->variants(name).empty()) << name;
  }
  EXPECT_EQ(said, ran);
}

}  // namespace
}  // namespace chorus::engine
