// The tests of the binary; main.cpp runs each for every kernel set of this machine.
#pragma once

#include "kernels.h"

namespace slipstream::test {

void test_rows(const KernelSet& kernels);
void test_product(const KernelSet& kernels);
void test_product_row_contract(const KernelSet& kernels);
void test_sample(const KernelSet& kernels);
void test_program(const KernelSet& kernels);
void test_team();
void test_tree();
void test_step_rows();
void test_attention(const KernelSet& kernels);

}  // namespace slipstream::test
