// The thread team of a program.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace slipstream {

// Threads that work through the stages of a run together. Tasks are claimed one by one, and a stage
// waits for tasks, never for threads: a thread that has lost its core holds up the others by no
// more than the task it is in.
class Team {
 public:
  static constexpr int kMostStages = 16384;

  explicit Team(int threads);  // the caller's own included
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int threads() const { return int(workers_.size()) + 1; }

  // Calls work(stage, task) for every task; a stage begins when all tasks of the one before are
  // done. One caller at a time.
  void run(const std::vector<int>& tasks_of_stages, const std::function<void(int, int)>& work);

 private:
  struct alignas(64) Stage {
    std::atomic<uint64_t> claimed{0};  // the run's number above, the next task below
    std::atomic<int> tasks{0};
    std::atomic<int> done{0};
  };

  void worker();
  void take_part(uint32_t run);
  bool work_off(Stage& stage, int index, uint32_t run);
  void wait_for_run(uint32_t seen);

  std::unique_ptr<Stage[]> stages_;
  std::atomic<int> stage_count_{0};
  std::atomic<const std::function<void(int, int)>*> work_{nullptr};
  std::atomic<uint32_t> run_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};

}  // namespace slipstream
