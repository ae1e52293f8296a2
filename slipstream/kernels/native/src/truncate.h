// Which tokens top-k and top-p keep. truncate.cpp is compiled once, for any machine; the small
// functions here are in an unnamed namespace because every instruction set includes them.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels.h"

namespace slipstream {

// A token further than this below the best cannot win; see NOISE_RANGE in noise.py.
constexpr double kNoiseRange = 26.00385159936301;

// Turns logits into scaled logits, the largest of which is 0.
struct Scale {
  double temperature;
  double top;  // the largest logit divided by the temperature
};

// A token and what it is ranked by: its scaled logit, or that plus noise. Ties go to the lowest id.
struct Ranked {
  double value;
  int32_t id;
};

// The last token that top-k and then top-p keep of those within the noise's range, with its scaled
// logit. NaN does not count. O(vocabulary log vocabulary) at worst.
Ranked truncate(const float* logits, int vocabulary, const Sampling& sampling, const Scale& scale);

namespace {

inline double scaled_logit(const Scale& scale, float logit) {
  return logit / scale.temperature - scale.top;
}

// The smallest logit that may have this scaled value, with room for rounding.
inline float least_logit(const Scale& scale, double scaled) {
  const double largest = scale.top * scale.temperature, below = scaled * scale.temperature;
  const double least = largest + below - 1e-6 * (std::fabs(largest) + std::fabs(below)) - FLT_MIN;
  return least < -FLT_MAX ? -INFINITY : float(least);
}

inline bool ranks_before(const Ranked& a, const Ranked& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

}  // namespace
}  // namespace slipstream
