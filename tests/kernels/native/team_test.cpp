// The thread team: every task once, stages in order, whatever the threads are doing.
#include "team.h"

#include <atomic>
#include <vector>

#include "check.h"
#include "tests.h"

namespace slipstream::test {
namespace {

// Each task adds to its stage's count; a stage must find the one before it complete.
void run_stages(Team& team, const std::vector<int>& tasks) {
  std::vector<std::atomic<int>> done(tasks.size());
  std::vector<std::vector<std::atomic<int>>> times(tasks.size());
  for (size_t i = 0; i < tasks.size(); ++i)
    times[i] = std::vector<std::atomic<int>>(size_t(tasks[i]));
  std::atomic<bool> in_order{true};
  team.run(tasks, [&](int stage, int task) {
    if (stage > 0 && done[size_t(stage) - 1] != tasks[size_t(stage) - 1]) in_order = false;
    ++times[size_t(stage)][size_t(task)];
    ++done[size_t(stage)];
  });
  CHECK(in_order);
  for (const auto& stage : times)
    for (const auto& count : stage) CHECK_EQUAL(count.load(), 1);
}

}  // namespace

void test_team() {
  for (int threads = 1; threads <= 4; ++threads) {
    Team team(threads);
    CHECK_EQUAL(team.threads(), threads);
    run_stages(team, {});
    run_stages(team, {0, 0, 1});
    // Many short runs, so that late workers of one meet the next.
    for (int run = 0; run < 300; ++run) run_stages(team, {1, run % 7, 0, 3, 1, 1, run % 50});
    run_stages(team, std::vector<int>(500, 3));
  }
  // A team may end while its workers still look for the run that they have just missed.
  for (int i = 0; i < 50; ++i) {
    Team team(3);
    if (i % 2) team.run({2}, [](int, int) {});
  }
}

}  // namespace slipstream::test
