// Package mcpserver offers one database to clients of the Model Context Protocol: the tools of package sqltool, and its schema and history as resources. `tonbo mcp` is this package as a command.
//
//	s, err := mcpserver.New(client, db, mcpserver.Options{})
//	defer s.Close()                           // before the database
//	err = s.ServeStdio(ctx, os.Stdin, os.Stdout) // or http.Serve(listener, s.Handler(nil))
//
// The database is the one that New is given: no input of a client names another one, and no output names it. What package sqltool promises of its tools holds here: what a client's model asks for is contained and bounded. Everything that the
// program has to know, and no client, goes to Options.Logger.
//
// https://modelcontextprotocol.io/specification
package mcpserver
