#include "truncate.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace slipstream {
namespace {

// Weights further below the largest, 1, are lost in the rounding of their sum.
constexpr double kWeightRange = 45;

std::vector<Ranked> within_noise(const float* logits, int vocabulary, const Scale& scale) {
  std::vector<Ranked> tokens(vocabulary);
  size_t count = 0;
  for (int32_t id = 0; id < vocabulary; ++id) {
    const double scaled = scaled_logit(scale, logits[id]);
    tokens[count] = {scaled, id};
    count += scaled >= -kNoiseRange;
  }
  tokens.resize(count);
  return tokens;
}

double weight_of_all(const float* logits, int vocabulary, const Scale& scale) {
  double total = 0;
  for (int id = 0; id < vocabulary; ++id) {
    const double scaled = scaled_logit(scale, logits[id]);
    if (scaled >= -kWeightRange) total += std::exp(scaled);
  }
  return total;
}

// The last of the best tokens that together do not reach `mass` before it.
Ranked last_within(std::vector<Ranked>& tokens, double mass) {
  const auto ranks_after = [](const Ranked& a, const Ranked& b) { return ranks_before(b, a); };
  std::make_heap(tokens.begin(), tokens.end(), ranks_after);
  Ranked last = tokens.front();
  double sum = 0;
  for (auto end = tokens.end(); end != tokens.begin(); --end) {
    const double weight = std::exp(tokens.front().value);
    sum += weight;
    if (!(sum - weight < mass)) break;
    last = tokens.front();
    std::pop_heap(tokens.begin(), end, ranks_after);
  }
  return last;
}

}  // namespace

Ranked truncate(const float* logits, int vocabulary, const Sampling& sampling, const Scale& scale) {
  std::vector<Ranked> tokens = within_noise(logits, vocabulary, scale);
  if (sampling.top_k > 0 && size_t(sampling.top_k) < tokens.size()) {
    std::nth_element(tokens.begin(), tokens.begin() + sampling.top_k, tokens.end(), ranks_before);
    tokens.resize(sampling.top_k);
  }
  if (!(sampling.top_p < 1)) return *std::max_element(tokens.begin(), tokens.end(), ranks_before);
  double total = 0;
  if (sampling.top_k > 0)
    for (const Ranked& token : tokens) total += std::exp(token.value);
  else
    total = weight_of_all(logits, vocabulary, scale);
  return last_within(tokens, sampling.top_p * total);
}

}  // namespace slipstream
