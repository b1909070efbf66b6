// Package soak decides whether a process that works steadily for a long time grows: its memory,
// goroutines, open files, files on disk, or the CPU time that an operation takes.
//
// A soak runs every engine side by side under a steady, modest load. In rounds of a few seconds it
// stops the load, so that nothing is in flight, and takes a [Sample] of each process. In the end
// [Quantity.Judge] compares the samples of each quantity:
//
//	|-- warm-up: 1/4 --|---- early ----|---- middle ----|---- late ----|
//
// Some quantities are saw-teeth: a log in memory that a snapshot cuts, a journal that a checkpoint
// cuts. So the judge compares what whole thirds have in common, the median and the minimum of their
// samples, and it condemns only growth that both show. A period may be as long as a third. A step,
// such as a cache that is made once, is no growth either: the growth from the middle third to the
// late one must be half of the whole.
package soak
