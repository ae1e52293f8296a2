#include "team.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace slipstream {
namespace {

// About 20 microseconds of waiting without a system call.
constexpr int kSpins = 1000;
constexpr uint32_t kBlocked = 0xffffffff;

uint64_t tagged(uint32_t run, uint32_t task) { return uint64_t(run) << 32 | task; }

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// The same rounding, and no flushing of subnormals, in every thread while it computes.
class FloatingPointControl {
 public:
#if defined(__x86_64__)
  FloatingPointControl() : before_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~FloatingPointControl() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#endif
};

}  // namespace

Team::Team(int threads) : stages_(new Stage[kMostStages]) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { worker(); });
}

Team::~Team() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Team::run(const std::vector<int>& tasks_of_stages, const std::function<void(int, int)>& work) {
  const uint32_t run = run_.load() + 1;
  const int count = int(tasks_of_stages.size());
  // A worker may still be looking at the run before. It can only claim a task by replacing the very
  // value of `claimed` that it has read, so that goes first, and the rest may then change.
  for (int i = 0; i < count; ++i) stages_[i].claimed.store(tagged(run, kBlocked));
  for (int i = 0; i < count; ++i) {
    stages_[i].tasks.store(tasks_of_stages[i]);
    stages_[i].done.store(0);
  }
  work_.store(&work);
  stage_count_.store(count);
  for (int i = 0; i < count; ++i) stages_[i].claimed.store(tagged(run, 0));
  run_.store(run);
  if (sleepers_.load() > 0) {
    std::lock_guard<std::mutex> lock(mutex_);
    wake_.notify_all();
  }
  take_part(run);
}

void Team::worker() {
  uint32_t seen = 0;
  while (!stop_.load()) {
    wait_for_run(seen);
    seen = run_.load();
    if (!stop_.load()) take_part(seen);
  }
}

void Team::wait_for_run(uint32_t seen) {
  for (int i = 0; i < kSpins; ++i) {
    if (run_.load() != seen || stop_.load()) return;
    pause();
  }
  std::unique_lock<std::mutex> lock(mutex_);
  sleepers_.fetch_add(1);
  wake_.wait(lock, [&] { return run_.load() != seen || stop_.load(); });
  sleepers_.fetch_sub(1);
}

void Team::take_part(uint32_t run) {
  FloatingPointControl control;
  for (int i = 0; i < stage_count_.load(); ++i)
    if (!work_off(stages_[i], i, run)) return;
}

// Claims and does tasks of one stage until it is done; false if the run has ended meanwhile.
bool Team::work_off(Stage& stage, int index, uint32_t run) {
  uint64_t next = stage.claimed.load();
  while (uint32_t(next >> 32) == run && int(uint32_t(next)) < stage.tasks.load() &&
         uint32_t(next) != kBlocked) {
    if (!stage.claimed.compare_exchange_weak(next, next + 1)) continue;
    (*work_.load())(index, int(uint32_t(next)));
    stage.done.fetch_add(1);
    next = stage.claimed.load();
  }
  for (int spins = 0; stage.done.load() < stage.tasks.load(); ++spins) {
    if (uint32_t(stage.claimed.load() >> 32) != run) return false;
    if (spins < kSpins)
      pause();
    else
      std::this_thread::yield();
  }
  return uint32_t(stage.claimed.load() >> 32) == run;
}

}  // namespace slipstream
