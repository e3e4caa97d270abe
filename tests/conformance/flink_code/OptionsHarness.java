/*
 * Prints the configuration options that Flink's own classes declare.
 *
 * One line in: the path of a jar. One line out: the options of the jar's classes, each as
 *     KEY | TYPE | DEFAULT | KEYS UNDER WHICH IT IS READ AS WELL
 * with tabs between the parts and U+001F between the options. An option is a static field of the type ConfigOption.
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.Enumeration;
import java.util.StringJoiner;
import java.util.TreeSet;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.FallbackKey;

public final class OptionsHarness {
    // The names of the methods that return the type differ between versions, so the fields are read.
    private static final String MARK = "Lorg/apache/flink/configuration/ConfigOption;";

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String path = in.readLine(); path != null; path = in.readLine()) {
            out.println(String.join("\u001f", optionsOf(path)));
        }
        out.flush();
    }

    private static TreeSet<String> optionsOf(String path) throws Exception {
        TreeSet<String> found = new TreeSet<>();
        try (JarFile jar = new JarFile(path)) {
            for (Enumeration<JarEntry> entries = jar.entries(); entries.hasMoreElements(); ) {
                JarEntry entry = entries.nextElement();
                String name = entry.getName();
                if (!name.startsWith("org/apache/flink/") || !name.endsWith(".class")) {
                    continue;
                }
                byte[] content = jar.getInputStream(entry).readAllBytes();
                if (new String(content, StandardCharsets.ISO_8859_1).contains(MARK)) {
                    addOptionsOf(name.substring(0, name.length() - ".class".length()).replace('/', '.'), found);
                }
            }
        }
        return found;
    }

    private static void addOptionsOf(String className, TreeSet<String> found) throws Exception {
        Field[] fields;
        try {
            fields = Class.forName(className, false, OptionsHarness.class.getClassLoader()).getDeclaredFields();
        } catch (LinkageError | ClassNotFoundException missing) {
            return; // A class of a connector or of a file system whose libraries are not in these jars.
        }
        for (Field field : fields) {
            if (!Modifier.isStatic(field.getModifiers()) || field.getType() != ConfigOption.class) {
                continue;
            }
            try {
                field.setAccessible(true);
                found.add(written((ConfigOption<?>) field.get(null)));
            } catch (LinkageError missing) {
                return;
            }
        }
    }

    private static String written(ConfigOption<?> option) throws Exception {
        StringJoiner others = new StringJoiner(" ");
        for (FallbackKey other : option.fallbackKeys()) {
            others.add(other.getKey());
        }
        Field type = ConfigOption.class.getDeclaredField("clazz");
        type.setAccessible(true);
        String typeName = ((Class<?>) type.get(option)).getSimpleName();
        Object value = option.hasDefaultValue() ? option.defaultValue() : null;
        String shown = value == null ? "" : String.valueOf(value).replaceAll("\\s+", " ");
        return option.key() + "\t" + typeName + "\t" + shown + "\t" + others;
    }
}
