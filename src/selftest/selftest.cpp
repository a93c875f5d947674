#include "selftest/selftest.h"

namespace chorus::selftest {

const std::vector<OperationCases>& all_operations() {
  static const std::vector<OperationCases> operations = {
      {"embed", run_embed_cases},
      {"gather_rows", run_gather_rows_cases},
  };
  return operations;
}

}  // namespace chorus::selftest
