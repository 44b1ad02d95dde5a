// Package server is the HTTP server of an account: its control plane and, for those who hold no credentials of the bucket, its data plane.
//
//	s, err := server.New(server.Options{Options: tonbo.Options{URL: "s3://bucket/agents"}})
//	...
//	http.Handle("/", s) // or s.Serve(ctx, listener)
//
// What it promises:
//
//   - All state is in the remote. Two servers on one remote behave as one, a killed one loses nothing that was answered, and a request can go to any of them.
//   - A request without a key that is in force gets 401, and nothing else is done for it. A name that the key does not reach answers as one that does not exist, with the same bytes (404), and without a look at
//     the remote, so that no time tells them apart. What the key reaches and may not do is 403.
//   - A secret is shown once, when its key is made or rotated. The remote holds its SHA-256 alone; no log, error or metric holds either.
//   - A revoked, rotated or expired key is refused by the next request to this server, and by others within [Options.KeyCache] (at most 5 s).
//
// What it does not know: pages, segments and the rules of the log. The control plane is [tonbo.Client]; the data plane hands objects through and lets the log decide who owns what.
//
// # How a request goes
//
// [Server.ServeHTTP] gives it an id, splits its path (route.go), finds the key (package internal/access), asks whether the key may do what the route does with the name in the path, and calls the route's
// handler with a call: the request, the key, the name. A handler answers with call.data, or returns an error, which problem.go turns into a status and an RFC 9457 body.
//
// The data plane plugs in as routes (data.go): a route says its action (access.ReadObjects, access.WriteObjects) and the server has checked reach, read-only and role before the handler runs; the handler gets the name
// from call.name and the rest of the path, decoded segment by segment, from call.rest.
package server
