// Package page is the web page of a server: the files that a browser loads, the headers that
// confine it, and the sessions of browsers that logged in with a token.
//
// The page is plain HTML, CSS and ES modules, embedded in the command: nothing is built, and
// nothing is loaded from elsewhere. It reads locks and acts on them through the same HTTP API as
// every other client; package httpapi has its routes.
//
// # Sessions
//
//	login with a token ──> session ──logout, an hour has passed, too many newer ones──> ended
//
// A session is what a browser has instead of the token: a random cookie that no script can read
// (HttpOnly) and that no other site can make the browser send (SameSite=Strict). The server keeps
// the token and admits it for each request, so a revoked token ends what its sessions may do at
// once. An action also needs the session's action token in a header, which only the page itself
// can know: other sites cannot read it, and a form cannot send it. Sessions are in memory. They
// end with the process, and each server of an engine has its own.
package page
