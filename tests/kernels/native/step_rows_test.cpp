// A tree across a page border beside a chunk of prompt, laid by hand.
#include "step_rows.h"

#include "check.h"
#include "tests.h"

namespace slipstream::test {

void test_step_rows() {
  using Ints = std::vector<int32_t>;
  // 30 tokens in slots 96 to 125; nodes 0 to 3 get 126, 127, 32 and 33.
  const Ints tokens = {50, 51, 52, 53}, parents = {-1, 0, 0, 1}, pages = {3, 1};
  // 40 tokens, the last eight in slots 64 to 71; the chunk gets 72 and 73.
  const Ints chunk = {60, 61}, chain = {-1, 0}, more = {5, 2};
  const StepRows rows = lay_rows({{tokens.data(), parents.data(), 4, 0, 30, pages.data(), 2, true},
                                  {chunk.data(), chain.data(), 2, 1, 40, more.data(), 2, false}});
  CHECK((rows.tokens == Ints{50, 51, 52, 53, 60, 61}));
  CHECK((rows.positions == Ints{30, 31, 31, 32, 40, 41}));
  CHECK((rows.slots == Ints{126, 127, 32, 33, 72, 73}));
  CHECK((rows.owners == Ints{0, 0, 0, 0, 1, 1}));
  CHECK((rows.follows == std::vector<uint8_t>{0, 1, 0, 0, 0, 1}));
  CHECK((rows.page_tables == Ints{0, 5}) && (rows.tail_starts == Ints{0, 32}));
  CHECK((rows.logit_rows == Ints{0, 1, 2, 3}));
  const auto slot = [&](int row, int column) {
    return rows.tail_slots[row * rows.tail_width + column];
  };
  CHECK(slot(0, 0) == 96 && slot(0, 30) == 126 && slot(1, 31) == 127);
  CHECK(slot(2, 30) == 126 && slot(2, 31) == 32);
  CHECK(slot(3, 31) == 127 && slot(3, 32) == 33);
  CHECK(slot(4, 8) == 72 && slot(5, 8) == 72 && slot(5, 9) == 73);
}

}  // namespace slipstream::test
