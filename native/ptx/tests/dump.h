// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tessera/ptx/parser.h"

namespace tessera::ptx {

/// All that a parse result says, as text: one line for each declaration, block and instruction.
std::string dump(const ParseResult& result);

/// One operand as PTX would have it, with names resolved: "[%rd1+4]", "{%r1, _}", "@7" for a label.
std::string dump_operand(const Function& function, const Operand& operand);

}  // namespace tessera::ptx
