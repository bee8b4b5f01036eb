#pragma once

/// How often the program, the library included, has called operator new, on all threads.
long allocation_count();
