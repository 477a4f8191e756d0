import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLookupData;
import org.apache.pulsar.broker.namespace.LookupOptions;
import org.apache.pulsar.common.naming.ServiceUnitId;

/** A load manager that heeds lookup properties: it says what it is sent and chooses the broker of the same rack. */
public class RackLoadManager extends ExtensibleLoadManagerImpl {
    @Override
    public CompletableFuture<Optional<BrokerLookupData>> assign(
            Optional<ServiceUnitId> topic, ServiceUnitId bundle, LookupOptions options) {
        System.out.println("LOOKUP " + topic.map(Object::toString).orElse("-") + " " + options.getProperties());
        return super.assign(topic, bundle, options);
    }

    @Override
    public CompletableFuture<Optional<String>> selectAsync(
            ServiceUnitId bundle, Set<String> excluded, LookupOptions options) {
        String rack = options.getProperties().get("rack");
        return getBrokerRegistry().getAvailableBrokerLookupDataAsync().thenCompose(brokers -> {
            for (Map.Entry<String, BrokerLookupData> broker : brokers.entrySet()) {
                if (rack != null && rack.equals(broker.getValue().properties().get("lookup.rack"))) {
                    return CompletableFuture.completedFuture(Optional.of(broker.getKey()));
                }
            }
            return super.selectAsync(bundle, excluded, options);
        });
    }
}
