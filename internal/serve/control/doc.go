// Package control lets an operator reach the process that has a folder, by a socket in the folder:
//
//	lk cluster VERB                     the process that has the folder
//	Call(folder, verb, arguments) ────> Listen(folder), Serve
//	        result, or the error <────  the function of the verb
//
// Every process that may open the socket may use every verb. The socket is made in a directory of the process's
// user alone and is for that user alone, and it is moved to its place when that is so. So it
// gives nobody a right that the files in the folder do not give already.
//
// A connection carries one request and one answer, each a line of JSON. If the caller goes away, the
// function's context ends. A lost answer means that the outcome is unknown.
package control
