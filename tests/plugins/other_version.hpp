// Included before everything else in the other version of the library: its scratch memory has more purposes, in other places.
#pragma once

#define rows rows_of_other, panels_of_other, rows
#include "core/scratch.hpp"
#undef rows
