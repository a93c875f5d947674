// The example of README.md: two questions about one text, asked of the shipped model. To be run in the repository's root folder.
#include <chorus/chorus.h>

#include <cstdio>
#include <vector>

int fail(const chorus::Error& error) {
  std::fprintf(stderr, "%s\n", error.to_line().c_str());
  return 1;
}

int main() {
  chorus::ModelOptions options;
  options.model = "models/kev-mini";
  options.base = "models/kev-mini-base";
  const auto model = chorus::Model::load(options);  // a Result: a value or an Error
  if (!model) return fail(model.error());

  const auto prefix = (*model)->prefill("Worst service ever! I want my money back.");  // read once
  if (!prefix) return fail(prefix.error());

  const std::vector<chorus::Question> questions = {
      {"refund", chorus::QuestionKind::noul, "Does the writer want money back?", {}},
      {"tone", chorus::QuestionKind::choice, "What is the tone of the message?", {{"calm", {}}, {"angry", {}}, {"friendly", {}}}},
  };
  const auto answers = (*model)->evaluate(*prefix, questions);  // any number of questions, any number of times
  if (!answers) return fail(answers.error());
  std::printf("refund: %.4f probability of yes\n", (*answers)[0].value);
  std::printf("tone: %s\n", questions[1].options[(*answers)[1].best].name.c_str());
}
