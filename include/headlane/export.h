/* Visibility of symbols, for C and C++. */
#ifndef HEADLANE_EXPORT_H
#define HEADLANE_EXPORT_H

/* Marks the public interface. The shared library exports it and nothing else. What links the static
 * library exports nothing of headlane, not even with -rdynamic, except for copies of inline members
 * of public classes that the compiler emits into its own files (weak symbols).
 * The CMake targets and headlane.pc of a shared library define HEADLANE_SHARED. */
#ifdef HEADLANE_SHARED
#define HEADLANE_API __attribute__((visibility("default")))
#else
#define HEADLANE_API
#endif

/* Marks inline functions, of which each program and library has its own copy whatever visibility
 * it is compiled with, and private members of a public class. */
#define HEADLANE_HIDDEN __attribute__((visibility("hidden")))

#endif
