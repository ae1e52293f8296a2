// A forward pass as a list of operations, recorded once and replayed for every step.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels.h"
#include "team.h"

namespace slipstream {

// Memory aligned to cache lines that only grows. It starts as zeros, so that rows which were never
// written, such as the padding of a tile, hold nothing that a kernel could stumble over.
class Memory {
 public:
  void* at_least(size_t bytes);

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  std::unique_ptr<void, Free> data_;
  size_t capacity_ = 0;
};

// Rows that one operation writes and others read.
class RowBuffer {
 public:
  RowBuffer(Form form, int width) : form_(form), width_(width) {}
  void resize(int rows);
  Rows view() const { return view_; }
  int width() const { return width_; }

 private:
  Form form_;
  int width_;
  Memory values_, groups_;
  Rows view_{};
};

// What the operations of one step share.
struct StepState {
  const KernelSet* kernels;
  int threads;
  Step step;
  std::vector<Tile> tiles;
  struct Piece {
    int tile;
    int segment;
  };
  std::vector<Piece> pieces;  // of the tiles' contexts, for attention
  int segments;               // of the longest context
  float* partials;
};

class Operation {
 public:
  virtual ~Operation() = default;
  virtual int tasks(const StepState& state) const = 0;
  virtual void run(const StepState& state, int task) const = 0;
};

// Which rows an operation works on.
enum class Domain : int { kAll = 0, kLogits = 1 };

class Program {
 public:
  explicit Program(const KernelSet* kernels) : kernels_(kernels) {}

  // A new buffer of rows, padded to whole groups; the result names it in the calls below.
  int add_rows(Form form, int width, Domain domain);

  void embed(const Matrix& table, int out);
  // `weight` [width]; with domain kLogits, row i of `out` is made of row logit_rows[i] of `x`.
  void norm(int x, const float* weight, int width, float eps, Domain domain, int out);
  // residual -1 is none; a swiglu product writes rows, the others floats.
  void product(const Matrix& matrix, int in, Finish finish, int residual, Domain domain, int out);
  // `attention` without its rows, which are taken from the buffers.
  void attention(const Attention& attention, int qkv, int out);
  // Its first part alone: stores keys and values [rows, 2 * kv_heads * head_dim].
  void store(const Attention& attention, int kv);
  // Floats `x` in the form of `out`.
  void convert(int x, int out);
  // Writes floats `x` to the slots of the rows, or reads them from the slots named in `sources`
  // into `out` from a column on.
  void keep(const SlotRows& kept, int part, int x);
  void gather(const SlotRows& kept, int part, int out, int column);

  void run(Team& team, const Step& step);
  Rows rows(int buffer) const { return buffers_[buffer].rows->view(); }

 private:
  struct Buffer {
    std::unique_ptr<RowBuffer> rows;
    Domain domain;
  };
  void prepare(StepState& state);

  const KernelSet* kernels_;
  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<Operation>> operations_;
  size_t partial_floats_ = 0;  // of one row and segment, for the widest attention
  Memory partials_;
};

}  // namespace slipstream
