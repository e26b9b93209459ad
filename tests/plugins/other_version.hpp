// Included first in another version of the library, whose scratch memory has more purposes, in
// another order.
#pragma once

#define rows rows_of_other, panels_of_other, rows
#include "core/scratch.hpp"
#undef rows
