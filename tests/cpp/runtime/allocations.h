#pragma once

/// How often the program, the library included, has called operator new.
long allocation_count();
