package changeset

// Break leaves out one of the rules by which rows are compared.
func (o *Options) Break(rule string) { o.broken = rule }
