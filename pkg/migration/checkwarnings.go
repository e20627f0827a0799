package migration

// warningRows are what a person should know, and what does not block.
func warningRows() []row {
	deployed := func(i Inventory) bool { return i.Origin.Deployment != nil }
	return []row{
		{
			Warning, StatusLockMoved,
			"this version of istiod writes status beside another istiod, so it has no pods from phase Lead on: %s",
			"expect that endpoints of Gateways that have not moved are out of date until then, and that no Gateway goes back by itself",
			onIstiod(func(i Inventory) bool {
				return i.version() != Version{} && i.version().Minor < followsFrom
			}, bothVersions), nil,
		},
		{
			Warning, OriginRolling, "an upgrade of istiod in the guest is in progress", "wait until it is done",
			onIstiod(func(i Inventory) bool { return deployed(i) && i.Origin.Deployment.Rolling }, nothing), nil,
		},
		{
			Warning, OriginNotServed, "istiod in the guest has no ready pod",
			"the Gateways can be migrated; a rollback needs an istiod that works",
			onIstiod(func(i Inventory) bool { return deployed(i) && i.Origin.Deployment.Ready == 0 }, nothing), nil,
		},
		{
			Warning, ClassMissing, "no GatewayClass has this controller name, so no Gateway would move: %s",
			"compare --controller-name with spec.controllerName of the GatewayClasses",
			onIstiod(func(i Inventory) bool { return deployed(i) && i.ClassMissing != "" },
				func(i Inventory) string { return i.ClassMissing }), nil,
		},
		{
			Warning, CAPluggedIn, "istiod in the guest has a CA of your own, which workloads outside of the gateways may trust",
			"create the Secret cacerts with its key pair on the management side, before the migration",
			onIstiod(func(i Inventory) bool { return i.PluggedInCA }, nothing), nil,
		},
		{
			Warning, SinglePod, "it has one pod: its connections are closed when this pod is replaced",
			"give it two replicas, or accept this",
			onGateways(func(_ Inventory, g InventoryGateway) bool { return g.deployed() && g.Deployment.Wanted == 1 },
				func(InventoryGateway) string { return "" }), nil,
		},
		{
			Warning, GatewayNotReady, "it is not ready now, so it moves last, and can stop the migration",
			"repair it first, or leave it out with " + SkipAnnotation + "=true",
			onGateways(func(_ Inventory, g InventoryGateway) bool { return g.remains() && !g.complete() && !g.Skip },
				func(InventoryGateway) string { return "" }), nil,
		},
		{
			Warning, GatewaySkipped, "it stays at the istiod in the guest, which therefore cannot be parked. " +
				"All Gateways stay held meanwhile, so their Services get no new ports",
			"remove the annotation " + SkipAnnotation,
			onGateways(func(_ Inventory, g InventoryGateway) bool { return g.Of != OfHosted && g.Skip },
				func(InventoryGateway) string { return "" }), nil,
		},
	}
}
