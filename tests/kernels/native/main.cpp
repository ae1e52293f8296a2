// Runs every test for every kernel set of this machine; SLIPSTREAM_ISA picks one set.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "check.h"
#include "tests.h"

namespace slipstream::test {
namespace {

struct Test {
  const char* name;
  void (*run)(const KernelSet&);
};

constexpr Test kTests[] = {
    {"rows", test_rows},
    {"product", test_product},
    {"product row contract", test_product_row_contract},
    {"attention", test_attention},
    {"sample", test_sample},
    {"program", test_program},
};

bool passes(const char* set, const char* name, const std::function<void()>& run) {
  try {
    run();
  } catch (const Failure& failure) {
    std::printf("%s: %s FAILED\n  %s\n", set, name, failure.what());
    return false;
  }
  std::printf("%s: %s passed\n", set, name);
  std::fflush(stdout);
  return true;
}

int run_all() {
  const char* wanted = std::getenv("SLIPSTREAM_ISA");
  bool ran = false, passed = passes("all", "team", test_team);
  passed &= passes("all", "tree", test_tree);
  passed &= passes("all", "step rows", test_step_rows);
  for (const char* name : {"amx", "avx512", "avx2", "portable"}) {
    if (wanted && *wanted && std::strcmp(wanted, name) != 0) continue;
    const KernelSet* kernels = kernel_set(name);
    if (!kernels) {
      std::printf("%s: not on this machine\n", name);
      continue;
    }
    ran = true;
    for (const Test& test : kTests) passed &= passes(name, test.name, [&] { test.run(*kernels); });
  }
  if (!ran) std::printf("no kernel set was tested\n");
  return ran && passed ? 0 : 1;
}

}  // namespace
}  // namespace slipstream::test

int main() { return slipstream::test::run_all(); }
