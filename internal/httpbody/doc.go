// Package httpbody moves the bodies of single HTTP requests for the stores that speak HTTP (remote/s3, remote/gateway): uploads that end with their request, answers read within bounds, and the headers that say
// which bytes of an object they are. It sends nothing, and knows no store.
package httpbody
