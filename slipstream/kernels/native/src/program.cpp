#include "program.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "operations.h"

namespace slipstream {
namespace {

constexpr size_t kLine = 64;

int padded(int count, int multiple) { return (count + multiple - 1) / multiple * multiple; }

// Up to kTileRows rows of one request each.
std::vector<Tile> tiles_of(const Step& step) {
  std::vector<Tile> tiles;
  for (int row = 0, first = 0; row < step.rows; ++row) {
    const bool last = row + 1 == step.rows || step.request_of[row + 1] != step.request_of[first] ||
                      row + 1 - first == kTileRows;
    if (!last) continue;
    tiles.push_back({first, row});
    first = row + 1;
  }
  return tiles;
}

int last_position(const Step& step, const Tile& tile) {
  return *std::max_element(step.positions + tile.first, step.positions + tile.last + 1);
}

}  // namespace

void* Memory::at_least(size_t bytes) {
  if (bytes > capacity_) {
    // Half as much again, so that slowly growing steps do not allocate each time.
    capacity_ = (bytes + bytes / 2 + kLine - 1) / kLine * kLine;
    data_.reset();
    data_.reset(std::aligned_alloc(kLine, capacity_));
    if (!data_) throw std::bad_alloc();
    std::memset(data_.get(), 0, capacity_);
  }
  return data_.get();
}

void RowBuffer::resize(int rows) {
  const size_t values = size_t(padded(rows, kTileRows)) * width_;
  view_.form = form_;
  view_.width = width_;
  switch (form_) {
    case Form::kFloat32:
      view_.floats = static_cast<float*>(values_.at_least(values * sizeof(float)));
      break;
    case Form::kBfloat16:
      view_.halves = static_cast<uint16_t*>(values_.at_least(values * sizeof(uint16_t)));
      break;
    case Form::kInt16:
      view_.shorts = static_cast<int16_t*>(values_.at_least(values * sizeof(int16_t)));
      break;
    case Form::kInt8: view_.bytes = static_cast<int8_t*>(values_.at_least(values)); break;
  }
  if (form_ == Form::kInt8 || form_ == Form::kInt16)
    view_.groups = static_cast<RowGroup*>(groups_.at_least(values / kGroup * sizeof(RowGroup)));
}

int Program::add_rows(Form form, int width, Domain domain) {
  buffers_.push_back({std::make_unique<RowBuffer>(form, padded(width, kGroup)), domain});
  return int(buffers_.size()) - 1;
}

void Program::embed(const Matrix& table, int out) {
  operations_.push_back(std::make_unique<Embed>(table, *buffers_[out].rows));
}

void Program::norm(int x, const float* weight, int width, float eps, Domain domain, int out) {
  operations_.push_back(
      std::make_unique<Norm>(*buffers_[x].rows, weight, width, eps, domain, *buffers_[out].rows));
}

void Program::product(const Matrix& matrix, int in, Finish finish, int residual, Domain domain,
                      int out) {
  operations_.push_back(std::make_unique<ProductOperation>(
      matrix, *buffers_[in].rows, finish, residual < 0 ? nullptr : buffers_[residual].rows.get(),
      domain, *buffers_[out].rows));
}

void Program::attention(const Attention& attention, int qkv, int out) {
  const RowBuffer& from = *buffers_[qkv].rows;
  const RowBuffer& to = *buffers_[out].rows;
  operations_.push_back(std::make_unique<StoreKeys>(attention, from, to));
  operations_.push_back(std::make_unique<Attend>(attention, from, to));
  operations_.push_back(std::make_unique<Merge>(attention, from, to));
  partial_floats_ =
      std::max(partial_floats_, size_t(attention.heads) * (attention.cache.head_dim + 2));
}

void Program::store(const Attention& attention, int kv) {
  const RowBuffer& from = *buffers_[kv].rows;
  operations_.push_back(std::make_unique<StoreKeys>(attention, from, from));
}

void Program::convert(int x, int out) {
  operations_.push_back(std::make_unique<Convert>(*buffers_[x].rows, *buffers_[out].rows));
}

void Program::keep(const SlotRows& kept, int part, int x) {
  operations_.push_back(std::make_unique<Keep>(kept, part, *buffers_[x].rows));
}

void Program::gather(const SlotRows& kept, int part, int out, int column) {
  operations_.push_back(std::make_unique<Gather>(kept, part, *buffers_[out].rows, column));
}

void Program::prepare(StepState& state) {
  const Step& step = state.step;
  for (Buffer& buffer : buffers_)
    buffer.rows->resize(buffer.domain == Domain::kLogits ? step.logit_count : step.rows);
  state.tiles = tiles_of(step);
  state.segments = 1;
  for (int tile = 0; tile < int(state.tiles.size()); ++tile) {
    const int segments = last_position(step, state.tiles[tile]) / kSegment + 1;
    state.segments = std::max(state.segments, segments);
    for (int segment = 0; segment < segments; ++segment) state.pieces.push_back({tile, segment});
  }
  const size_t floats = partial_floats_ * state.segments * step.rows;
  state.partials = static_cast<float*>(partials_.at_least(floats * sizeof(float)));
}

void Program::run(Team& team, const Step& step) {
  StepState state{kernels_, team.threads(), step, {}, {}, 0, nullptr};
  prepare(state);
  std::vector<int> tasks;
  for (const auto& operation : operations_) tasks.push_back(operation->tasks(state));
  team.run(tasks, [&](int stage, int task) { operations_[stage]->run(state, task); });
}

}  // namespace slipstream
